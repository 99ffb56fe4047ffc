package demo

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// child is a program that the demo started. It ends with the demo at the latest.
type child struct {
	name string
	log  string // path of its log
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// program says how to start a child.
type program struct {
	name string
	path string
	args []string
	env  []string // beside a clean environment
	dir  string   // where its log goes
}

// start starts the program. The thread that makes a child must live as long as it does: the kernel sends the parent
// death signal when that thread ends.
func (p program) start() (*child, error) {
	c := &child{name: p.name, log: filepath.Join(p.dir, p.name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", p.name, err)
	}
	c.cmd = exec.Command(p.path, p.args...)
	c.cmd.Env = append(cleanEnv(os.Environ()), p.env...)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = childAttr()
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		_ = log.Close() // the child has its own descriptor
		started <- err
		if err == nil {
			defer close(c.done)
			_ = c.cmd.Wait() // the result stands in ProcessState
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.name, err)
	}
	return c, nil
}

// run starts the program and waits until it has ended.
func (p program) run(ctx context.Context) error {
	c, err := p.start()
	if err != nil {
		return err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		c.stop(0)
		return context.Cause(ctx)
	}
	if !c.cmd.ProcessState.Success() {
		return c.ended()
	}
	return nil
}

// stop asks the child to end and kills it when it has not after grace.
func (c *child) stop(grace time.Duration) {
	select {
	case <-c.done:
		return
	default:
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have just ended
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		_ = c.cmd.Process.Kill()
		<-c.done
	}
}

// ended is the error of a child that ended by itself, with the end of its log.
func (c *child) ended() error {
	return fmt.Errorf("%s ended: %s; the end of its log:\n%s", c.name, c.cmd.ProcessState, c.tail())
}

func (c *child) tail() string {
	log, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	if len(lines) > 15 {
		lines = lines[len(lines)-15:]
	}
	return "  " + string(bytes.Join(lines, []byte("\n  ")))
}

// cleanEnv leaves out what would change the binaries' settings from outside.
func cleanEnv(env []string) []string {
	var clean []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case strings.HasPrefix(name, "FERRY_"), strings.HasPrefix(name, "OTEL_"), strings.HasPrefix(name, "PG"), name == "DATABASE_URL",
			strings.EqualFold(name, "HTTP_PROXY"), strings.EqualFold(name, "HTTPS_PROXY"), strings.EqualFold(name, "ALL_PROXY"):
		default:
			clean = append(clean, kv)
		}
	}
	return clean
}
