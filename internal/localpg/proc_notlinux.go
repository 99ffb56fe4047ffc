//go:build unix && !linux

package localpg

import "syscall"

// dieWithParent does nothing where the system has no parent-death signal: there, a killed parent leaves its server.
func dieWithParent(*syscall.SysProcAttr) {}
