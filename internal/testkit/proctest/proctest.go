// Package proctest builds Ferry's binaries once for a test run and starts them as processes that tests can signal, kill
// and read the logs of.
package proctest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Binaries holds built binaries until Clean. The zero value builds with the race detector.
type Binaries struct {
	// Plain builds without the race detector, for measuring.
	Plain bool

	mu   sync.Mutex
	dir  string
	done map[string]error
}

// Path builds cmd/<name>, once, and returns the binary's path.
func (b *Binaries) Path(t testing.TB, name string) string {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dir == "" {
		dir, err := os.MkdirTemp("", "ferry-bin-")
		if err != nil {
			t.Fatal(err)
		}
		b.dir, b.done = dir, map[string]error{}
	}
	path := filepath.Join(b.dir, name)
	err, built := b.done[name]
	if !built {
		args := []string{"build", "-o", path, "github.com/ferry-forward/ferry/cmd/" + name}
		if !b.Plain {
			args = append([]string{"build", "-race"}, args[1:]...)
		}
		cmd := exec.Command("go", args...)
		var out []byte
		if out, err = cmd.CombinedOutput(); err != nil {
			err = fmt.Errorf("building %s: %w\n%s", name, err, out)
		}
		b.done[name] = err
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Clean removes the binaries; call it at the end of TestMain.
func (b *Binaries) Clean() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
		b.dir = ""
	}
}

// Proc is a running process.
type Proc struct {
	t      testing.TB
	name   string
	cmd    *exec.Cmd
	log    *lockedBuffer
	exited chan struct{}
	err    error
	asked  atomic.Bool // to end, or its end was waited for
}

// Start runs the binary with the environment's KEY=VALUE pairs added to a clean environment. At the end of the test it is killed,
// and its log is shown if the test failed. It fails the test if the process ended before and nobody asked or waited for it.
func Start(t testing.TB, path string, env []string, args ...string) *Proc {
	t.Helper()
	p := &Proc{t: t, name: filepath.Base(path), cmd: exec.Command(path, args...), log: &lockedBuffer{}, exited: make(chan struct{})}
	p.cmd.Env = append(clean(os.Environ()), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", p.name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		if !p.Running() && !p.asked.Load() {
			t.Errorf("%s (pid %d) ended by itself: %v", p.name, p.cmd.Process.Pid, p.cmd.ProcessState)
		}
		p.Kill()
		if t.Failed() {
			t.Logf("log of %s (pid %d):\n%s", p.name, p.cmd.Process.Pid, tail(p.Log(), 20_000))
		}
		if strings.Contains(p.Log(), "WARNING: DATA RACE") {
			t.Errorf("%s: data race:\n%s", p.name, tail(p.Log(), 20_000))
		}
	})
	return p
}

// Run runs the binary to its end and returns what it printed and its exit code.
func Run(t testing.TB, path string, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = append(clean(os.Environ()), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("running %s: %v", path, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// clean leaves out settings of Ferry that the tests' own environment may hold.
func clean(env []string) []string {
	var out []string
	for _, kv := range env {
		if !strings.HasPrefix(kv, "FERRY_") && !strings.HasPrefix(kv, "DATABASE_URL=") {
			out = append(out, kv)
		}
	}
	return out
}

// Signal sends a signal to the process.
func (p *Proc) Signal(s os.Signal) {
	p.asked.Store(true)
	_ = p.cmd.Process.Signal(s)
}

// Freeze keeps the process from running (SIGSTOP): its connections stay open and it does nothing.
func (p *Proc) Freeze() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen process run on, where it was.
func (p *Proc) Thaw() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// Kill sends SIGKILL and waits for the end.
func (p *Proc) Kill() {
	p.asked.Store(true)
	p.Thaw()
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Term sends SIGTERM and waits for the end, at most limit; it returns the exit code and how long it took.
func (p *Proc) Term(limit time.Duration) (code int, took time.Duration) {
	p.t.Helper()
	start := time.Now()
	p.Signal(syscall.SIGTERM)
	return p.Wait(limit), time.Since(start)
}

// Wait waits for the process's end, at most limit, and returns its exit code.
func (p *Proc) Wait(limit time.Duration) int {
	p.t.Helper()
	p.asked.Store(true)
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		p.t.Fatalf("%s did not exit within %v", p.name, limit)
		return -1
	}
}

// Running says whether the process has not ended.
func (p *Proc) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Pid returns the process id.
func (p *Proc) Pid() int { return p.cmd.Process.Pid }

// Log returns what the process wrote so far.
func (p *Proc) Log() string { return p.log.String() }

// WaitLog waits until the log holds text.
func (p *Proc) WaitLog(text string, limit time.Duration) {
	p.t.Helper()
	Eventually(p.t, limit, func() error {
		if strings.Contains(p.Log(), text) {
			return nil
		}
		if !p.Running() {
			return fmt.Errorf("%s exited; its log lacks %q", p.name, text)
		}
		return fmt.Errorf("the log of %s lacks %q", p.name, text)
	})
}

// Eventually calls check every 20 ms until it returns nil; after limit the test fails with its last error.
func Eventually(t testing.TB, limit time.Duration, check func() error) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("after %v: %v", limit, err)
		case <-tick.C:
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*lockedBuffer)(nil)

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}
