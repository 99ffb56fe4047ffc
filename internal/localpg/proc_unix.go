//go:build unix

package localpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// stopSignal asks the server for a fast shutdown: sessions are cut off, data is written.
const stopSignal = syscall.SIGINT

// owner is the user that the server runs as. nil: the user of this process.
type owner struct {
	name     string
	uid, gid uint32
}

// serverOwner picks an unprivileged user when this process is root, whom Postgres refuses.
func serverOwner() (*owner, error) {
	if os.Geteuid() != 0 {
		return &owner{name: "of this process", uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("reading the ids of user %s: %w", name, err)
		}
		return &owner{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return &owner{name: "65534", uid: 65534, gid: 65534}, nil
}

func (o *owner) foreign() bool { return os.Geteuid() == 0 }

func (o *owner) chown(paths ...string) error {
	if !o.foreign() {
		return nil
	}
	for _, p := range paths {
		if err := os.Chown(p, int(o.uid), int(o.gid)); err != nil {
			return fmt.Errorf("giving %s to user %s: %w", p, o.name, err)
		}
	}
	return nil
}

func (o *owner) apply(cmd *exec.Cmd) {
	// A group of its own: Ctrl-C in the terminal is for us, who then stop the server in our own order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	if o.foreign() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: o.uid, Gid: o.gid}
	}
}

// reaches says whether the owner may enter dir: each directory on the way needs its x bit.
func (o *owner) reaches(dir string) bool {
	if !o.foreign() {
		return true
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for {
		info, err := os.Stat(dir)
		if err != nil {
			return false
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return false
		}
		bit := os.FileMode(0o001)
		switch {
		case st.Uid == o.uid:
			bit = 0o100
		case st.Gid == o.gid:
			bit = 0o010
		}
		if info.Mode().Perm()&bit == 0 {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

// startProcess starts cmd on an operating system thread that lives as long as the child. The parent-death signal is
// sent when the thread that made the child ends, not the process: on a thread of the pool, the Go runtime could retire
// it and so stop the server in the middle of its work.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		defer close(p.done)
		_ = cmd.Wait() // its result stands in cmd.ProcessState
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func killGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }

func processAlive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// lockDir takes the lock file of dir, nil when another process has it. Made says that the file is to be made.
func lockDir(dir string, made bool) *os.File {
	flags := os.O_RDWR
	if made {
		flags |= os.O_CREATE
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		// A sweep may have removed the directory between our opening the file and locking it.
		mine, err1 := f.Stat()
		there, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(mine, there) {
			return f
		}
	}
	_ = f.Close()
	return nil
}
