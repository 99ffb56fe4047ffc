package kafkatest

import "syscall"

// dieWithParent has the kernel kill the child when its parent ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
