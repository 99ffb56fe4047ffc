//go:build !linux

package demo

import "syscall"

// childAttr gives a child a group of its own, so that Ctrl-C in the terminal is for the demo, which stops its children
// in order. Only Linux can have a child end with a parent that is killed.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
