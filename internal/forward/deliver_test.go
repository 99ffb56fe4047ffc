package forward_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ferry-forward/ferry/internal/forward"
	"github.com/ferry-forward/ferry/internal/forward/send"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

func g500() receivertest.Answer { return receivertest.Status(500) }

func wantPending(t *testing.T, what string, got forward.Result, counted bool, at time.Duration) {
	t.Helper()
	if got.Status != message.StatusPending || got.Counted != counted || got.Reason != "" || got.Aborted || got.Attempt == nil ||
		!got.NextAttempt.Equal(start.Add(at)) {
		t.Errorf("%s: %+v after %s; want pending, counted %v, after %s", what, got, got.NextAttempt.Sub(start), counted, at)
	}
}

// A failing message runs through its attempts with growing waits, and fails with the last one.
func TestRetriesUntilExhausted(t *testing.T) {
	t.Parallel()
	g := newRig(t, "")
	g.Always(g500())
	del := due()
	for i, wait := range []time.Duration{5, 10, 20, 40} {
		del.Attempts = i
		got := g.Deliver(context.Background(), record("{}"), del)
		wantPending(t, "attempt", got, true, wait*time.Second)
		if a := got.Attempt; a.Verdict != message.Retry || a.HTTPStatus != 500 || a.ErrorClass != "" || !a.StartedAt.Equal(start) {
			t.Errorf("%+v", a)
		}
	}
	del.Attempts = 4
	got := g.Deliver(context.Background(), record("{}"), del)
	if got.Status != message.StatusFailed || got.Reason != message.Exhausted || !got.Counted || got.Attempt == nil || !got.NextAttempt.IsZero() {
		t.Errorf("%+v", got)
	}
	if g.Count() != 5 {
		t.Errorf("%d requests", g.Count())
	}
}

func TestRejected(t *testing.T) {
	t.Parallel()
	g := newRig(t, "")
	g.Always(receivertest.JSONStatus(413, "<html>too large</html>"))
	got := g.send("{}")
	if got.Status != message.StatusFailed || got.Reason != message.Rejected || !got.Counted || g.Count() != 1 ||
		got.Attempt.Response != "<html>too large</html>" || got.Attempt.Verdict != message.Reject {
		t.Errorf("%+v %+v", got, got.Attempt)
	}
}

// A wait that the destination asks for costs no attempt and is not undercut, also when the last attempt is at stake.
func TestAskedToWait(t *testing.T) {
	t.Parallel()
	g := newRig(t, "")
	for _, status := range []int{429, 503} {
		g.Always(receivertest.Status(status).With("Retry-After", "30"))
		del := due()
		del.Attempts = 4
		got := g.Deliver(context.Background(), record("{}"), del)
		wantPending(t, "asked", got, false, 33*time.Second) // and half of the jitter, which only adds
		if got.Attempt.Verdict != message.Hold {
			t.Errorf("%+v", got.Attempt)
		}
	}
	g.Always(receivertest.Status(429).With("Retry-After", "86400"))
	wantPending(t, "asked for a day", g.send("{}"), false, 66*time.Minute)
	g.Always(receivertest.Status(429).With("Retry-After", "soon"))
	wantPending(t, "asked for nonsense", g.send("{}"), false, 5*time.Second)
	g.Always(receivertest.Status(503).With("Retry-After", "soon"))
	wantPending(t, "503 with nonsense", g.send("{}"), true, 5*time.Second)
	g.Always(receivertest.Status(500).With("Retry-After", "30"))
	wantPending(t, "500", g.send("{}"), true, 5*time.Second)

	ruled := newRig(t, "request: {url: URL/in}\nresponse: {rules: [{when: .status == 429, then: retry, reason: mine}]}")
	ruled.Always(receivertest.Status(429).With("Retry-After", "30"))
	got := ruled.send("{}")
	wantPending(t, "a rule counts it, the wait stays", got, true, 33*time.Second)
	if got.Detail != "mine" || got.Attempt.Detail != "mine" {
		t.Errorf("%+v", got)
	}
}

// A message that is not reached waits half the age of its trouble.
func TestHoldGrowsWithItsAge(t *testing.T) {
	t.Parallel()
	g := newRig(t, "")
	g.Down()
	for age, want := range map[time.Duration]time.Duration{
		0: 5 * time.Second, 4 * time.Second: 5 * time.Second, time.Minute: 30 * time.Second, time.Hour: 300 * time.Second,
	} {
		del := due()
		del.Attempts, del.Requests = 4, 9
		if age > 0 {
			del.OwnSince = start.Add(-age)
		}
		got := g.Deliver(context.Background(), record("{}"), del)
		wantPending(t, age.String(), got, false, want)
		if a := got.Attempt; a.ErrorClass != message.ErrConnect || !strings.HasPrefix(a.Error, "connect: ") || a.HTTPStatus != 0 {
			t.Errorf("%+v", a)
		}
	}
	g.Up()
	if got := g.send("{}"); got.Status != message.StatusDelivered {
		t.Errorf("%+v", got)
	}
}

// max_age counts from due_from, bounds held messages, and ends a wait early.
func TestExpiry(t *testing.T) {
	t.Parallel()
	g := newRig(t, "retry: {max_age: 1m}\nrequest: {url: URL/in}")
	g.Always(receivertest.Status(429).With("Retry-After", "55"))
	g.clock.advance(30 * time.Second)
	del := due()
	got := g.Deliver(context.Background(), record("{}"), del)
	wantPending(t, "held past its age", got, false, time.Minute)
	g.clock.advance(30*time.Second - 1)
	g.Always(receivertest.Status(200))
	if got := g.Deliver(context.Background(), record("{}"), del); got.Status != message.StatusDelivered {
		t.Errorf("just in time: %+v", got)
	}
	g.clock.advance(1)
	before := g.Count()
	got = g.Deliver(context.Background(), record("{}"), del)
	if got.Status != message.StatusFailed || got.Reason != message.Expired || got.Attempt != nil || got.Counted || g.Count() != before ||
		!strings.Contains(got.Detail, "1m") {
		t.Errorf("%+v", got)
	}
	del.DueFrom = start.Add(time.Minute) // replayed
	if got := g.Deliver(context.Background(), record("{}"), del); got.Status != message.StatusDelivered {
		t.Errorf("replayed: %+v", got)
	}
}

// A request that the stopping process ends is not judged, not counted, and not told as the destination's fault.
func TestAborted(t *testing.T) {
	t.Parallel()
	g := newRig(t, "")
	g.Always(receivertest.Hang())
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		g.WaitCount(t, 1)
		cancel()
	}()
	if got := g.Deliver(ctx, record("{}"), due()); !got.Aborted || got.Status != message.StatusPending || got.Attempt != nil || got.Counted {
		t.Errorf("%+v", got)
	}
	g.Deliverer.Close()
	if got := g.send("{}"); !got.Aborted {
		t.Errorf("after Close: %+v", got)
	}
}

// A status that is in when the process stops is an outcome: the message was delivered. Only where a rule wants the body
// is there nothing to judge yet.
func TestStoppedWhileReadingTheBody(t *testing.T) {
	t.Parallel()
	for text, aborted := range map[string]bool{
		"": false,
		"request: {url: URL/in}\nresponse: {error_code: .body.code}":                           false,
		"request: {url: URL/in}\nresponse: {rules: [{when: .status == 200, then: delivered}]}": false,
		"request: {url: URL/in}\nresponse: {rules: [{when: .body.ok, then: delivered}]}":       true,
	} {
		g := newRig(t, text)
		ctx, cancel := context.WithCancel(context.Background())
		g.Always(receivertest.Answer{Do: slowBody})
		d := g.deliverer(t, parse(t, g.URL(), text), func(c *send.Config) { c.Dial = stopInBody(cancel) })
		got := d.Deliver(ctx, record("{}"), due())
		if got.Aborted != aborted || !aborted && got.Status != message.StatusDelivered {
			t.Errorf("%q: %+v", text, got)
		}
		cancel()
	}
}

// The whole table at a real server: what each answer means, then the destination recovers.
func TestTheWholeTable(t *testing.T) {
	t.Parallel()
	retry, hold := message.Retry, message.Hold
	g := newRig(t, "http: {timeout: 300ms, connect_timeout: 200ms}\nrequest: {url: URL/in}")
	for status, want := range map[int]message.Verdict{
		401: retry, 403: retry, 404: retry, 407: retry, 408: retry, 425: retry, 429: hold, 500: retry, 502: retry, 503: retry, 504: retry,
		301: retry, 302: retry, 307: retry, 501: message.Reject, 400: message.Reject, 201: message.Delivered, 202: message.Delivered,
		206: message.Delivered, 299: message.Delivered,
	} {
		g.Always(receivertest.Status(status))
		before := g.Count()
		if got := g.send("{}"); got.Attempt == nil || got.Attempt.Verdict != want || got.Attempt.HTTPStatus != status || g.Count() != before+1 {
			t.Errorf("%d: %+v, want %s; %d requests", status, got, want, g.Count()-before)
		}
	}
	g.Always(receivertest.Reset())
	if got := g.send("{}"); got.Attempt.Verdict != retry || got.Attempt.ErrorClass != message.ErrReset {
		t.Errorf("reset: %+v", got.Attempt)
	}
	g.Always(receivertest.Hang())
	if got := g.deliverer(t, parse(t, g.URL(), "http: {timeout: 100ms, connect_timeout: 50ms}\nrequest: {url: URL/in}"), nil).
		Deliver(context.Background(), record("{}"), due()); got.Attempt.Verdict != retry || !strings.HasPrefix(got.Attempt.Error, "timeout: ") {
		t.Errorf("timeout: %+v", got.Attempt)
	}
	nowhere := g.deliverer(t, parse(t, "http://nowhere.invalid", ""), nil)
	if got := nowhere.Deliver(context.Background(), record("{}"), due()); got.Attempt.Verdict != hold || got.Attempt.ErrorClass != message.ErrDNS {
		t.Errorf("no such host: %+v", got.Attempt)
	}
	expired := receivertest.New(t, receivertest.Options{TLS: true})
	untrusted := g.deliverer(t, parse(t, expired.URL(), ""), nil)
	if got := untrusted.Deliver(context.Background(), record("{}"), due()); got.Attempt.Verdict != hold || got.Attempt.ErrorClass != message.ErrTLS {
		t.Errorf("bad certificate: %+v", got.Attempt)
	}
	renewed := g.deliverer(t, parse(t, expired.URL(), ""), func(c *send.Config) { c.TLS = expired.ClientTLS() })
	if got := renewed.Deliver(context.Background(), record("{}"), due()); got.Status != message.StatusDelivered {
		t.Errorf("renewed certificate: %+v", got)
	}
	g.Always(receivertest.Status(200))
	if got := g.send("{}"); got.Status != message.StatusDelivered {
		t.Errorf("recovered: %+v", got)
	}
}

func TestErrorInside200(t *testing.T) {
	t.Parallel()
	ruled := newRig(t, "retry: {max_attempts: 2}\nrequest: {url: URL/in}\nresponse: {rules: [{when: .body.errors, then: retry}], error_code: .body.code}")
	plain := newRig(t, "")
	for _, g := range []*rig{ruled, plain} {
		g.Always(receivertest.JSON(`{"errors":true,"code":17}`))
	}
	first := ruled.send("{}")
	wantPending(t, "ruled", first, true, 5*time.Second)
	if first.Attempt.ErrorCode != "17" {
		t.Errorf("%+v", first.Attempt)
	}
	del := due()
	del.Attempts = 1
	if got := ruled.Deliver(context.Background(), record("{}"), del); got.Reason != message.Exhausted {
		t.Errorf("%+v", got)
	}
	if got := plain.send("{}"); got.Status != message.StatusDelivered || plain.Count() != 1 {
		t.Errorf("%+v", got)
	}
}

func TestRedirectToLogin(t *testing.T) {
	t.Parallel()
	login := receivertest.New(t, receivertest.Options{})
	g := newRig(t, "")
	g.Always(receivertest.Status(302).With("Location", login.URL()+"/login?token=s3cret"))
	got := g.send("{}")
	wantPending(t, "redirect", got, true, 5*time.Second)
	if got.Attempt.Error != "redirect to "+login.URL()+"/login" || login.Count() != 0 {
		t.Errorf("%q, the login page was called %d times", got.Attempt.Error, login.Count())
	}
}

// What a destination sends can't break what is stored.
func TestHostileAnswer(t *testing.T) {
	t.Parallel()
	g := newRig(t, "request: {url: URL/in}\nresponse: {error_code: .body.code}")
	for _, body := range []string{strings.Repeat("\x00\xff", 1<<20), `{"code":"` + strings.Repeat(`\u0000`, 100) + `"}`} {
		g.Always(receivertest.JSONStatus(500, body).With("X", strings.Repeat("y", 1000)))
		a := g.send("{}").Attempt
		for _, text := range []string{a.Error, a.ErrorCode, a.Response, a.Detail} {
			if strings.IndexByte(text, 0) >= 0 || !utf8.ValidString(text) || len(text) > 1024 {
				t.Errorf("%.40q", text)
			}
		}
	}
}

// No secret of the URL or of a header is in anything that is stored.
func TestSecretsStayHere(t *testing.T) {
	t.Parallel()
	g := newRig(t, "")
	rt := parse(t, g.URL(), "vars: {token: s3cret}\nhttp: {timeout: 100ms, connect_timeout: 50ms}\n"+
		`request: {url: 'URL/in?token=\($vars.token)', headers: {Authorization: 'Bearer \($vars.token)'}}`)
	refuse := func(c *send.Config) {
		c.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:1") //nolint:wrapcheck // passed through
		}
	}
	for name, c := range map[string]struct {
		answer receivertest.Answer
		change func(*send.Config)
	}{
		"refused": {receivertest.Status(200), refuse}, "401": {receivertest.Status(401), nil}, "timeout": {receivertest.Hang(), nil},
		"reset": {receivertest.Reset(), nil}, "302": {receivertest.Status(302).With("Location", "/x?token=s3cret"), nil},
	} {
		g.Always(c.answer)
		got := g.deliverer(t, rt, c.change).Deliver(context.Background(), record("{}"), due())
		a := got.Attempt
		if a == nil || strings.Contains(a.Error+a.Detail+a.Response+a.ErrorCode+got.Detail, "s3cret") {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if got := g.last(t).Query; got != "token=s3cret" {
		t.Errorf("query %q", got)
	}
}
