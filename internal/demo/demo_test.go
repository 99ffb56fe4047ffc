package demo

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

var binaries proctest.Binaries //nolint:gochecknoglobals // built once for the package's tests

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		binaries.Clean()
		os.Exit(code)
	}))
}

// startDemo starts the real demo with the real binaries, short.
func startDemo(t *testing.T, env ...string) *proctest.Proc {
	t.Helper()
	bin := filepath.Dir(binaries.Path(t, "ingester"))
	binaries.Path(t, "forwarder")
	return proctest.Start(t, binaries.Path(t, "demo"), append([]string{"DEMO_SECONDS=3", "DEMO_RATE=100"}, env...),
		"--bin", bin, "--routes", "../../examples/parking/routes.yaml")
}

const (
	upTimeout   = 3 * time.Minute // fetching Postgres included
	doneTimeout = 3 * time.Minute
)

func TestDemo(t *testing.T) {
	t.Parallel()
	p := startDemo(t)
	code := p.Wait(upTimeout + doneTimeout)
	out := p.Log()
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for _, want := range []string{
		"the platform is gone", "the platform is back", "What became of", "The story of one message", "Idempotency-Key: vehicle-event/",
		"lost             0", "Nothing is lost.",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the demo does not say %q", want)
		}
	}
	for _, secret := range []string{accessPwd, "\x1b["} {
		if strings.Contains(out, secret) {
			t.Errorf("without a terminal the demo prints %q", secret)
		}
	}
	if t.Failed() {
		return
	}
	nothingLeft(t, out)
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	p := startDemo(t, "DEMO_SECONDS=600")
	p.WaitLog("Producing", upTimeout)
	p.Signal(syscall.SIGINT)
	if code := p.Wait(time.Minute); code != 130 {
		t.Errorf("exit code %d after an interrupt, want 130", code)
	}
	nothingLeft(t, p.Log())
}

func TestKilled(t *testing.T) {
	t.Parallel()
	p := startDemo(t, "DEMO_SECONDS=600")
	p.WaitLog("Producing", upTimeout)
	p.Kill()
	nothingLeft(t, p.Log())
}

func TestKept(t *testing.T) {
	t.Parallel()
	p := startDemo(t, "DEMO_KEEP=1")
	p.WaitLog("All is left running", upTimeout+doneTimeout)
	for _, want := range []string{"psql 'postgres://", "/metrics", "/stats"} {
		p.WaitLog(want, time.Minute)
	}
	if code, _ := p.Term(time.Minute); code != 0 && code != 130 {
		t.Errorf("exit code %d", code)
	}
	nothingLeft(t, p.Log())
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	demo := binaries.Path(t, "demo")
	for name, c := range map[string]struct {
		env  []string
		args []string
		says string
	}{
		"setting": {[]string{"DEMO_SECONDS=soon"}, nil, "DEMO_SECONDS=soon"},
		"command": {nil, []string{"start"}, "start"},
		"flag":    {nil, []string{"--fast"}, "fast"},
		"sweep":   {nil, []string{"sweep", "/etc"}, "/etc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, stderr, code := proctest.Run(t, demo, c.env, c.args...)
			if code != 2 || !strings.Contains(stderr, c.says) {
				t.Errorf("exit code %d, stderr %q; want 2 and %q", code, stderr, c.says)
			}
		})
	}
}

var (
	pids   = regexp.MustCompile(`\(pid (\d+)\)`)
	folder = regexp.MustCompile(`(?m)^Folder +(\S+),`)
)

var errAlive = errors.New("it can be seen")

// nothingLeft checks that the children which the demo named, and its folder, are gone or go soon.
func nothingLeft(t *testing.T, out string) {
	t.Helper()
	dir := folder.FindStringSubmatch(out)
	if dir == nil || len(pids.FindAllString(out, -1)) != 2 {
		t.Fatalf("the demo does not name its folder and its children:\n%s", out)
	}
	proctest.Eventually(t, time.Minute, func() error {
		for _, m := range pids.FindAllStringSubmatch(out, -1) {
			pid, err := strconv.Atoi(m[1])
			if err != nil {
				return err
			}
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("process %d is still there: %w", pid, cmp.Or(err, errAlive))
			}
		}
		if _, err := os.Stat(dir[1]); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is still there: %w", dir[1], cmp.Or(err, errAlive))
		}
		return nil
	})
}
