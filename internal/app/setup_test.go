package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/ferry-forward/ferry/internal/admin"
	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/config"
	"github.com/ferry-forward/ferry/internal/migrate"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

// hang makes the test binary a process whose stop hangs.
const hang = "FERRY_TEST_HANG"

func TestMain(m *testing.M) {
	if os.Getenv(hang) != "" {
		os.Exit(app.Main(&cobra.Command{Use: "forwarder", RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Println("ready")
			<-cmd.Context().Done()
			fmt.Println(context.Cause(cmd.Context()))
			select {}
		}}))
	}
	goleak.VerifyTestMain(m)
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := proctest.Start(t, os.Args[0], []string{hang + "=1"})
	p.WaitLog("ready", 10*time.Second)
	p.Signal(syscall.SIGTERM)
	p.WaitLog("stopped by a signal: terminated", 10*time.Second)
	p.Signal(syscall.SIGINT)
	if code := p.Wait(10 * time.Second); code != 1 || !strings.Contains(p.Log(), "second signal, ending at once") {
		t.Errorf("exit %d:\n%s", code, p.Log())
	}
}

// output is where a log goes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func options(stderr io.Writer) app.SetupOptions {
	return app.SetupOptions{
		Binary: "ingester", Common: &config.Common{LogLevel: "info", LogFormat: "json", RouteFile: config.RouteFile{Routes: "none"}}, AdminAddr: "127.0.0.1:0",
		Routes: &route.File{Routes: []*route.Route{{Name: "a", Topics: []string{"u", "t"}}, {Name: "b", Topics: []string{"t"}}}},
		Parts:  []admin.Part{admin.Database, admin.Schema}, Stderr: stderr,
	}
}

func start(t *testing.T) (*app.Setup, *output) {
	t.Helper()
	var out output
	s, err := app.Start(t.Context(), options(&out))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop(context.Background(), 10*time.Second) })
	return s, &out
}

func readyz(t *testing.T, s *app.Setup) (code int, r admin.Readiness) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, r
}

func TestStartServesBeforeAnythingElse(t *testing.T) {
	t.Parallel()
	s, out := start(t)
	code, r := readyz(t, s)
	if code != 503 || !r.Parts[admin.Routes].OK || r.Parts[admin.Database].Why != "starting" || r.Parts[admin.Schema].Why != "starting" {
		t.Errorf("%d %+v", code, r)
	}
	for range 2 {
		s.Stop(t.Context(), 10*time.Second)
	}
	if _, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr); err == nil {
		t.Error("the port is still open")
	}
	if log := out.String(); !strings.Contains(log, `"message":"started"`) || !strings.Contains(log, `"message":"stopped"`) {
		t.Errorf("log: %s", log)
	}
}

func TestStartRefusesAPortInUse(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	var out output
	o := options(&out)
	o.AdminAddr = s.Addr
	_, err := app.Start(t.Context(), o)
	var stderr bytes.Buffer
	if code := app.Code(&stderr, err); code != 2 || !strings.Contains(stderr.String(), s.Addr) ||
		!strings.Contains(stderr.String(), "set FERRY_ADMIN_ADDR") || strings.Count(stderr.String(), "\n") != 1 {
		t.Errorf("exit %d: %s", code, stderr.String())
	}
}

func TestAwaitDatabase(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	var step atomic.Int32
	away := &store.Error{Op: "asking the database", Err: errors.New("connection refused")}
	missing := &store.SchemaError{State: migrate.State{Known: 1}}
	err := s.AwaitDatabase(t.Context(), func(context.Context) error {
		code, r := readyz(t, s)
		database, schema := r.Parts[admin.Database], r.Parts[admin.Schema]
		switch step.Add(1) {
		case 1:
			return away
		case 2:
			if code != 503 || database.OK || database.Why != away.Error() {
				t.Errorf("while away: %d %+v", code, r)
			}
			return missing
		case 3:
			if code != 503 || !database.OK || schema.OK || !strings.Contains(schema.Why, "forwarder migrate up") {
				t.Errorf("while the schema is missing: %d %+v", code, r)
			}
		}
		return nil
	})
	if err != nil || step.Load() != 3 {
		t.Fatalf("%v after %d questions", err, step.Load())
	}
	if code, r := readyz(t, s); code != 200 || !r.Ready {
		t.Errorf("in the end: %d %+v", code, r)
	}
}

func TestAwaitDatabaseRefuses(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	for name, err := range map[string]error{
		"schema for newer binaries": &store.SchemaError{State: migrate.State{Version: 9, Mark: 9, Known: 1}, TooNew: true},
		"forgets commits":           errors.New("synchronous_commit is off"),
	} {
		got := s.AwaitDatabase(t.Context(), func(context.Context) error { return err })
		if code := app.Code(io.Discard, got); code != 2 || !errors.Is(got, err) {
			t.Errorf("%s: exit %d, %v", name, code, got)
		}
	}
}

func TestAwaitDatabaseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	err := s.AwaitDatabase(ctx, func(context.Context) error {
		cancel(app.ErrSignal)
		return &store.Error{Op: "asking", Err: errors.New("away")}
	})
	if !errors.Is(err, app.ErrSignal) || app.Code(io.Discard, err) != 0 {
		t.Errorf("got %v", err)
	}
}

func TestFinishTellsWhatFailed(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	fatal := errors.New("fenced")
	s.Life.Go(t.Context(), "ingest", time.Second, func(context.Context) error { return fatal })
	if err := s.Finish(t.Context(), 10*time.Second); !errors.Is(err, fatal) || app.Code(io.Discard, err) != 1 {
		t.Errorf("got %v", err)
	}
}

func TestFinishIsBounded(t *testing.T) {
	t.Parallel()
	s, out := start(t)
	never := make(chan struct{})
	defer close(never)
	s.Life.Add("kafka", time.Hour, func(context.Context) error { <-never; return nil })
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(app.ErrSignal)
	if err := s.Finish(ctx, 20*time.Millisecond); err != nil {
		t.Errorf("a stop that was cut off is an error: %v", err)
	}
	if log := out.String(); !strings.Contains(log, "stopping kafka: FERRY_SHUTDOWN_TIMEOUT passed") {
		t.Errorf("log: %s", log)
	}
}
