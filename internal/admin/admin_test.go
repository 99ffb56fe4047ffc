package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ferry-forward/ferry/internal/admin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T, parts *admin.Parts, metrics http.Handler) *admin.Server {
	t.Helper()
	if metrics == nil {
		metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "m 1") })
	}
	s, err := admin.Listen(t.Context(), admin.Options{
		Addr: "127.0.0.1:0", Parts: parts, Metrics: metrics, Logger: slog.New(slog.DiscardHandler),
		Version: admin.Version{Binary: "ingester", Version: "1.2.3", Commit: "abc", Date: "2026-01-02", Go: "go1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

func request(t *testing.T, method, url string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, strings.TrimSpace(string(body))
}

func TestPages(t *testing.T) {
	t.Parallel()
	url := "http://" + listen(t, admin.NewParts(nil), nil).Addr()
	for _, c := range []struct {
		method, path string
		code         int
		body         string
	}{
		{"GET", "/livez", 200, `{"alive":true}`},
		{"HEAD", "/livez", 200, ""},
		{"GET", "/livez?verbose", 200, `{"alive":true}`},
		{"GET", "/metrics", 200, "m 1"},
		{"GET", "/version", 200, `{"binary":"ingester","version":"1.2.3","commit":"abc","date":"2026-01-02","go":"go1"}`},
		{"GET", "/readyz", 200, `{"ready":true,"parts":{}}`},
		{"POST", "/livez", 405, `{"error":"this page can be read only: use GET or HEAD"}`},
		{"DELETE", "/metrics", 405, `{"error":"this page can be read only: use GET or HEAD"}`},
		{"GET", "/", 404, `{"error":"there is no such page; there are /livez, /readyz, /metrics and /version"}`},
		{"GET", "/livez/", 404, `{"error":"there is no such page; there are /livez, /readyz, /metrics and /version"}`},
		{"POST", "/x", 404, `{"error":"there is no such page; there are /livez, /readyz, /metrics and /version"}`},
	} {
		resp, body := request(t, c.method, url+c.path)
		if resp.StatusCode != c.code || body != c.body {
			t.Errorf("%s %s: %d %s", c.method, c.path, resp.StatusCode, body)
		}
		if c.code == 405 && resp.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s %s: Allow is %q", c.method, c.path, resp.Header.Get("Allow"))
		}
		if c.path != "/metrics" && resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: Content-Type is %q", c.method, c.path, resp.Header.Get("Content-Type"))
		}
	}
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	var changes []string
	parts := admin.NewParts(func(p admin.Part, s admin.State) {
		changes = append(changes, fmt.Sprintf("%s %v %s", p, s.OK, s.Why))
	}, admin.Database, admin.Topics)
	url := "http://" + listen(t, parts, nil).Addr() + "/readyz"
	want := func(code int, body string) {
		t.Helper()
		resp, got := request(t, http.MethodGet, url)
		if resp.StatusCode != code || got != body {
			t.Errorf("got %d %s\nwant %d %s", resp.StatusCode, got, code, body)
		}
	}
	want(503, `{"ready":false,"parts":{"database":{"ok":false,"why":"starting"},"topics":{"ok":false,"why":"starting"}}}`)
	parts.Set(admin.Database, true, "ignored")
	parts.Set(admin.Database, true, "")
	parts.Set(admin.Topics, false, "no topic x yet")
	want(503, `{"ready":false,"parts":{"database":{"ok":true,"why":""},"topics":{"ok":false,"why":"no topic x yet"}}}`)
	parts.Set(admin.Topics, true, "")
	want(200, `{"ready":true,"parts":{"database":{"ok":true,"why":""},"topics":{"ok":true,"why":""}}}`)
	parts.Set(admin.Database, false, "away")
	want(503, `{"ready":false,"parts":{"database":{"ok":false,"why":"away"},"topics":{"ok":true,"why":""}}}`)
	if got := fmt.Sprint(parts.NotReady()); got != "[database]" {
		t.Errorf("not ready: %s", got)
	}
	if got := strings.Join(changes, "; "); got != "database true ; topics false no topic x yet; topics true ; database false away" {
		t.Errorf("changes: %s", got)
	}
}

func TestPartWithSeveralReporters(t *testing.T) {
	t.Parallel()
	parts := admin.NewParts(nil, admin.Database)
	for _, c := range []struct {
		reporter string
		ok       bool
		why      string
		want     admin.State
	}{
		{"watch", true, "", admin.State{OK: true}},
		{"ingest", false, "it takes no writes", admin.State{Why: "it takes no writes"}},
		{"watch", true, "", admin.State{Why: "it takes no writes"}},
		{"watch", false, "away", admin.State{Why: "away; it takes no writes"}},
		{"ingest", true, "", admin.State{Why: "away"}},
		{"watch", true, "", admin.State{OK: true}},
	} {
		parts.Report(admin.Database, c.reporter, c.ok, c.why)
		if got := parts.Readiness().Parts[admin.Database]; got != c.want {
			t.Errorf("after %s %v %q: %+v", c.reporter, c.ok, c.why, got)
		}
	}
}

// A note shows and changes nothing else.
func TestNotes(t *testing.T) {
	t.Parallel()
	changes := 0
	parts := admin.NewParts(func(admin.Part, admin.State) { changes++ }, admin.Routes)
	parts.Set(admin.Routes, true, "")
	parts.Note(admin.Routes, "b", "b is down")
	parts.Note(admin.Routes, "a", "a is down")
	if r := parts.Readiness(); !r.Ready || r.Parts[admin.Routes] != (admin.State{OK: true, Why: "a is down; b is down"}) {
		t.Errorf("%+v", r)
	}
	parts.Note(admin.Routes, "a", "")
	parts.Note(admin.Routes, "b", "")
	if r := parts.Readiness(); r.Parts[admin.Routes] != (admin.State{OK: true}) || changes != 1 {
		t.Errorf("%+v after %d changes", r, changes)
	}
}

func TestPartsFromSeveralGoroutines(t *testing.T) {
	t.Parallel()
	parts := admin.NewParts(func(admin.Part, admin.State) {}, admin.Kafka)
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for n := range 100 {
				parts.Set(admin.Kafka, (i+n)%2 == 0, "away")
				if _, err := json.Marshal(parts.Readiness()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	addr := listen(t, admin.NewParts(nil), nil).Addr()
	_, err := admin.Listen(t.Context(), admin.Options{Addr: addr, Logger: slog.New(slog.DiscardHandler)})
	want := "listening for probes and metrics on " + addr + ": "
	if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Count(err.Error(), addr) != 1 {
		t.Errorf("got %v", err)
	}
}

func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	s, err := admin.Listen(t.Context(), admin.Options{
		Addr: "127.0.0.1:0", Parts: admin.NewParts(nil), Logger: slog.New(slog.DiscardHandler),
		Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			close(entered)
			<-leave
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-entered
	defer close(leave)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	first := s.Stop(ctx)
	if first == nil {
		t.Error("a request that hangs did not show")
	}
	if again := s.Stop(context.Background()); again != first { //nolint:errorlint // the very same
		t.Errorf("a second stop returned %v", again)
	}
}
