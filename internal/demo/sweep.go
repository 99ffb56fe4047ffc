package demo

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	dirPattern   = "ferry-demo-"
	sweepTimeout = 30 * time.Second
)

// workDir is the demo's directory, which goes with the demo: a sweeper process waits for the end of a pipe whose other
// end only the demo holds, and removes the directory if the demo has not.
type workDir struct {
	path    string
	pipe    io.Closer
	sweeper *exec.Cmd
}

func newWorkDir(self string) (*workDir, error) {
	base := os.TempDir()
	if os.Geteuid() == 0 {
		base = "/tmp" // Postgres runs as another user, who may not get into root's own TMPDIR
	}
	path, err := os.MkdirTemp(base, dirPattern)
	if err != nil {
		return nil, fmt.Errorf("making the demo's directory: %w", err)
	}
	d := &workDir{path: path}
	if err := d.startSweeper(self); err != nil {
		_ = os.RemoveAll(path)
		return nil, err
	}
	if err := os.Chmod(path, 0o711); err != nil { // the user of Postgres goes through it
		d.remove()
		return nil, fmt.Errorf("making the demo's directory: %w", err)
	}
	return d, nil
}

func (d *workDir) startSweeper(self string) error {
	cmd := exec.Command(self, "sweep", d.path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // not childAttr: it outlives a demo that is killed
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("starting the demo's sweeper: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the demo's sweeper: %w", err)
	}
	d.pipe, d.sweeper = pipe, cmd
	return nil
}

// remove removes the directory and waits for the sweeper.
func (d *workDir) remove() {
	_ = os.RemoveAll(d.path) // the sweeper tries again
	_ = d.pipe.Close()
	_ = d.sweeper.Wait()
}

// Sweep waits until in ends and then removes the demo's directory dir, whose files its children may still be writing
// for a moment.
func Sweep(in io.Reader, dir string) error {
	if !strings.HasPrefix(filepath.Base(dir), dirPattern) {
		return fmt.Errorf("%w: %s is no directory of the demo", ErrUsage, dir)
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	_, _ = io.Copy(io.Discard, in) // until the demo is gone, whatever the error
	deadline := time.Now().Add(sweepTimeout)
	for {
		err := os.RemoveAll(dir)
		// What still runs could make files in it again: it is gone only when nobody did.
		time.Sleep(100 * time.Millisecond)
		if _, statErr := os.Stat(dir); err == nil && os.IsNotExist(statErr) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("removing %s: %w", dir, err)
		}
	}
}
