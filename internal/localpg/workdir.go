package localpg

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// workDir is the directory of one server.
type workDir struct {
	path string
	temp bool     // to be removed
	lock *os.File // held while the server is in use, so that others know
}

const tempPattern = "ferry-postgres-"

var errUnreachable = errors.New("the server's user can't enter it; choose a directory below /tmp or /var/tmp")

// openWorkDir makes dir, or a temporary directory when it is empty.
func openWorkDir(dir string, owner *owner) (*workDir, error) {
	if dir == "" {
		return tempWorkDir(owner)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("making the directory of postgres: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the server's user goes through it
		return nil, fmt.Errorf("making the directory of postgres: %w", err)
	}
	if !owner.reaches(dir) {
		return nil, fmt.Errorf("running postgres as user %s in %s: %w", owner.name, dir, errUnreachable)
	}
	return &workDir{path: dir}, nil
}

func tempWorkDir(owner *owner) (*workDir, error) {
	for _, base := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if !owner.reaches(base) {
			continue
		}
		sweep(base)
		for range 3 { // a sweep of another process may take the directory before it is locked
			dir, err := os.MkdirTemp(base, tempPattern)
			if err != nil {
				return nil, fmt.Errorf("making the directory of postgres: %w", err)
			}
			if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the server's user goes through it
				return nil, fmt.Errorf("making the directory of postgres: %w", err)
			}
			if lock := lockDir(dir, true); lock != nil {
				return &workDir{path: dir, temp: true, lock: lock}, nil
			}
		}
	}
	return nil, fmt.Errorf("running postgres as user %s in %s: %w", owner.name, os.TempDir(), errUnreachable)
}

func (d *workDir) close() {
	if d.temp {
		_ = os.RemoveAll(d.path)
	}
	if d.lock != nil {
		_ = d.lock.Close()
	}
}

// sweep removes the directories of processes that were killed before they could.
func sweep(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, tempPattern+"*"))
	for _, dir := range dirs {
		lock := lockDir(dir, false)
		if lock == nil {
			continue // in use, or not ours
		}
		// A killed parent's server may take a moment to end; it is left for the next sweep.
		if _, err := os.Stat(filepath.Join(dir, "data", "postmaster.pid")); err != nil {
			_ = os.RemoveAll(dir)
		} else if !serverAlive(filepath.Join(dir, "data", "postmaster.pid")) {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}

// serverAlive says whether the process that wrote the pid file runs.
func serverAlive(pidFile string) bool {
	b, err := os.ReadFile(pidFile)
	if err != nil {
		return false
	}
	var pid int
	if _, err := fmt.Sscanf(string(b), "%d", &pid); err != nil {
		return false
	}
	return processAlive(pid)
}
