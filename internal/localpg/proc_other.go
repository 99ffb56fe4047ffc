//go:build !unix

package localpg

import (
	"os"
	"os/exec"
	"path/filepath"
)

const (
	tempLock = "lock"
)

var stopSignal = os.Interrupt

type owner struct{ name string }

func serverOwner() (*owner, error) { return &owner{name: "of this process"}, nil }

func (o *owner) chown(...string) error { return nil }

func (o *owner) apply(*exec.Cmd) {}

func (o *owner) reaches(string) bool { return true }

func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
	}()
	return p, nil
}

func killGroup(p *os.Process) error { return p.Kill() }

func processAlive(int) bool { return true }

func lockDir(dir string, made bool) *os.File {
	if !made {
		return nil
	}
	f, err := os.Create(filepath.Join(dir, tempLock))
	if err != nil {
		return nil
	}
	return f
}
