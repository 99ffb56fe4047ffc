package demo

import "syscall"

// childAttr gives a child a group of its own, so that Ctrl-C in the terminal is for the demo, which stops its children
// in order, and has the kernel kill it when the demo dies.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
