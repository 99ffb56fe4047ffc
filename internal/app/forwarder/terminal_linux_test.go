package forwarder_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

// terminal is a command that runs on a terminal of its own.
type terminal struct {
	*testing.T
	keys *os.File
	cmd  *exec.Cmd

	mu   sync.Mutex
	said strings.Builder
	read chan struct{} // closed when all was read
}

// onTerminal starts the forwarder's command on a terminal.
func onTerminal(t *testing.T, env []string, args ...string) *terminal {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal("no pseudo-terminal to be had (/dev/ptmx):", err)
	}
	t.Cleanup(func() { _ = keys.Close() })
	var number int
	raw, err := keys.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
			err = errors.Join(err, unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0))
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = screen.Close() }()
	x := &terminal{T: t, keys: keys, cmd: exec.Command(binaries.Path(t, "forwarder"), args...), read: make(chan struct{})}
	x.cmd.Env = append(os.Environ(), env...)
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = screen, screen, screen
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.cmd.Process.Kill() })
	go func() {
		defer close(x.read)
		_, _ = io.Copy(x, keys)
	}()
	return x
}

// Write takes what the command says.
func (x *terminal) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.said.Write(p)
}

func (x *terminal) screen() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.said.String()
}

// waits until the screen has the text, and types.
func (x *terminal) waits(text, typed string) {
	x.Helper()
	proctest.Eventually(x, patience, func() error {
		if got := x.screen(); !strings.Contains(got, text) {
			return fmt.Errorf("the screen lacks %q: %q", text, got)
		}
		return nil
	})
	if _, err := x.keys.WriteString(typed); err != nil {
		x.Fatal(err)
	}
}

// ends waits for the end, and returns all that was said.
func (x *terminal) ends() string {
	x.Helper()
	timer := time.AfterFunc(patience, func() { _ = x.cmd.Process.Kill() })
	defer timer.Stop()
	if err := x.cmd.Wait(); err != nil {
		x.Errorf("%v: %q", err, x.screen())
	}
	<-x.read
	return x.screen()
}

// On a terminal, a replay asks first: no, and Ctrl-C, change nothing. Its progress is drawn.
func TestReplayAsks(t *testing.T) {
	t.Parallel()
	s := newReplayScene(t)
	s.save("events", message.IngestStored, "e0", "e1", "e2")
	s.save("orders", message.IngestStored, "o3")
	s.settle(message.StatusFailed, message.Rejected, "%")
	pending := "SELECT count(*) FROM ferry.deliveries WHERE status = 'pending'"
	for _, answer := range []string{"n\n", "\n", "what\n", "\x03"} {
		x := onTerminal(t, s.env, "replay", "--status", "failed")
		x.waits("replay 4 failed messages (events 3, orders 1)? [y/N] ", answer)
		if got := x.ends(); !strings.Contains(got, "nothing was replayed") || s.value(pending) != "0" {
			t.Errorf("%q: %s pending, %q", answer, s.value(pending), got)
		}
	}
	x := onTerminal(t, s.env, "replay", "--status", "failed", "--rate", "2")
	x.waits("[y/N] ", "y\n")
	got := x.ends()
	if !strings.Contains(got, "\r[##########..........] 2 of 4 (50 %), ") || !strings.HasSuffix(spans.ReplaceAllString(got, "…"), "\rreplayed 4 of 4 failed messages …\r\n") ||
		s.value(pending) != "4" {
		t.Errorf("%s pending, %q", s.value(pending), got)
	}
}

// Ctrl-C in the middle takes the bar away and says how to go on.
func TestReplayInterruptedOnTerminal(t *testing.T) {
	t.Parallel()
	s := newReplayScene(t)
	s.save("events", message.IngestStored, "e0", "e1", "e2")
	s.settle(message.StatusFailed, message.Rejected, "%")
	x := onTerminal(t, s.env, "replay", "--status", "failed", "--yes", "--rate", "0.1")
	proctest.Eventually(t, patience, func() error {
		if s.value("SELECT count(*) FROM ferry.deliveries WHERE status = 'pending'") != "1" {
			return errors.New("not begun")
		}
		return nil
	})
	x.waits("", "\x03")
	if got := x.ends(); !strings.Contains(got, "stopped: 1 of 3 messages are replayed; run the same again within 24 hours") {
		t.Errorf("%q", got)
	}
}
