package platform

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, cfg Config) (*Platform, *Server, *http.Client) {
	t.Helper()
	p := New(cfg)
	s, err := Listen(t.Context(), "127.0.0.1:0", p)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p, s, &http.Client{Transport: transport}
}

func send(t *testing.T, c *http.Client, s *Server, key, body string) (int, reply) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Addr()+"/mch/business", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var r reply
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatalf("answer %q: %v", b, err)
	}
	return resp.StatusCode, r
}

// keyWith finds an event that the platform treats as told.
func keyWith(t *testing.T, p *Platform, want func(mood) bool) string {
	t.Helper()
	for i := range 100_000 {
		key := fmt.Sprintf("vehicle-event/%d", i)
		if want(p.moodFor(key)) {
			return key
		}
	}
	t.Fatal("no event gets this mood")
	return ""
}

const allowed = `{"access_name":"n","access_pwd":"p"}`

var withAccess = Config{AccessName: "n", AccessPwd: "p"}

func TestAnswers(t *testing.T) {
	t.Parallel()
	p, s, c := start(t, withAccess)
	type step struct {
		status  int
		errcode string
	}
	for name, tc := range map[string]struct {
		mood  func(mood) bool
		steps []step
		kept  bool
	}{
		"good":          {func(m mood) bool { return m.errors == 0 && !m.losesAnswer && !m.refuses }, []step{{200, ""}, {200, "4"}}, true},
		"refused":       {func(m mood) bool { return m.refuses }, []step{{200, "998"}, {200, "998"}}, false},
		"error first":   {func(m mood) bool { return m.errors == 1 }, []step{{500, "500"}, {200, ""}, {200, "4"}}, true},
		"answer lost":   {func(m mood) bool { return m.losesAnswer }, []step{{500, "500"}, {200, "4"}}, true},
		"two errors":    {func(m mood) bool { return m.errors == 2 }, []step{{500, "500"}, {500, "500"}, {200, ""}}, true},
		"slow but good": {func(m mood) bool { return m.takes.Milliseconds() > 500 }, []step{{200, ""}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			key := keyWith(t, p, tc.mood)
			// Another case may have had the same event.
			p.mu.Lock()
			delete(p.events, key)
			p.mu.Unlock()
			for i, want := range tc.steps {
				status, r := send(t, c, s, key, allowed)
				if status != want.status || r.ErrCode != want.errcode || (r.Result == 0) != (want.errcode == "") {
					t.Fatalf("request %d: status %d %+v, want %+v", i+1, status, r, want)
				}
			}
			e, ok := p.Event(key)
			if !ok || e.Accepted != tc.kept || e.Requests != len(tc.steps) || e.Body != allowed {
				t.Errorf("the platform remembers %+v", e)
			}
		})
	}
}

func TestWrongAccess(t *testing.T) {
	t.Parallel()
	p, s, c := start(t, withAccess)
	if status, _ := send(t, c, s, "k", `{"access_name":"n","access_pwd":"wrong"}`); status != http.StatusUnauthorized {
		t.Errorf("wrong password: status %d", status)
	}
	if status, _ := send(t, c, s, "k", `not JSON`); status != http.StatusBadRequest {
		t.Errorf("not JSON: status %d", status)
	}
	if _, ok := p.Event("k"); ok {
		t.Error("an event without access is remembered")
	}
}

func TestGoesAwayAndComesBack(t *testing.T) {
	t.Parallel()
	_, s, c := start(t, Config{Polite: true})
	addr := s.Addr()
	if status, _ := send(t, c, s, "k", `{}`); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	s.GoAway()
	if resp, err := c.Get("http://" + addr + "/healthz"); err == nil {
		resp.Body.Close()
		t.Fatal("a platform that is away answers")
	}
	if err := s.ComeBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Addr() != addr {
		t.Fatalf("it came back at %s, not at %s", s.Addr(), addr)
	}
	if status, r := send(t, c, s, "k", `{}`); status != http.StatusOK || r.ErrCode != "4" {
		t.Errorf("after coming back: status %d %+v", status, r)
	}
}

func TestForgetsTheOldest(t *testing.T) {
	t.Parallel()
	p, s, c := start(t, Config{Polite: true, Keep: 2})
	for _, key := range []string{"a", "b", "c"} {
		send(t, c, s, key, `{}`)
	}
	if _, ok := p.Event("a"); ok {
		t.Error("the oldest event is still there")
	}
	if _, ok := p.Event("c"); !ok {
		t.Error("the newest event is gone")
	}
	if p.Stats().Accepted != 3 {
		t.Errorf("stats: %+v", p.Stats())
	}
}
