package localpg

import "syscall"

// dieWithParent has the kernel send the child a fast-shutdown signal when the thread that made it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = stopSignal }
