//go:build !linux

package store

import "syscall"

// setUserTimeout does nothing where the system has no such limit; keep-alive is left.
func setUserTimeout(string, string, syscall.RawConn) error { return nil }
