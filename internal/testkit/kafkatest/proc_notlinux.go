//go:build unix && !linux

package kafkatest

import "syscall"

// dieWithParent does nothing where the system has no parent-death signal: there, a killed parent leaves its broker.
func dieWithParent(*syscall.SysProcAttr) {}
