package forward_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/forward/breaker"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// What a route's results say about its destination: after a hundred first requests with the same answer the breaker is
// open if it is a fault, and allows fewer at a time if it asks to wait.
func TestWhatAnswersSay(t *testing.T) {
	t.Parallel()
	const (
		life  = "life"
		asked = "asked"
		fault = "fault"
	)
	wait := func(code int) receivertest.Answer { return receivertest.Status(code).With("Retry-After", "1") }
	rules := func(when, then string) string {
		return fmt.Sprintf("request: {url: URL/in}\nresponse: {rules: [{when: '%s', then: %s}]}", when, then)
	}
	otherwise := func(v string) string { return "request: {url: URL/in}\nresponse: {otherwise: " + v + "}" }
	for name, c := range map[string]struct {
		route  string
		answer receivertest.Answer
		want   string
	}{
		"200":                         {"", receivertest.Status(200), life},
		"400":                         {"", receivertest.Status(400), life},
		"401":                         {"", receivertest.Status(401), fault},
		"302":                         {"", receivertest.Status(302), fault},
		"404":                         {"", receivertest.Status(404), fault},
		"413":                         {"", receivertest.Status(413), life},
		"500":                         {"", receivertest.Status(500), fault},
		"501":                         {"", receivertest.Status(501), life},
		"reset":                       {"", receivertest.Reset(), fault},
		"429":                         {"", receivertest.Status(429), asked},
		"429 with a wait":             {"", wait(429), asked},
		"503":                         {"", receivertest.Status(503), fault},
		"503 with a wait":             {"", wait(503), asked},
		"500 with a wait":             {"", wait(500), fault},
		"a rule's retry":              {rules(".status == 200", "retry"), receivertest.Status(200), fault},
		"a rule's reject of a 500":    {rules(".status == 500", "reject"), receivertest.Status(500), life},
		"a rule's delivered of a 500": {rules(".status == 500", "delivered"), receivertest.Status(500), life},
		"a rule's hold":               {rules(".status == 202", "hold"), receivertest.Status(202), life},
		"a rule's hold of a reset":    {rules(`.error == "reset"`, "hold"), receivertest.Reset(), fault},
		"a rule that fails":           {rules(".status.x", "delivered"), receivertest.Status(200), fault},
		"otherwise retry":             {otherwise("retry"), receivertest.Status(200), fault},
		"otherwise hold of a 500":     {otherwise("hold"), receivertest.Status(500), fault},
		"otherwise hold of a 400":     {otherwise("hold"), receivertest.Status(400), life},
		"otherwise reject of a 500":   {otherwise("reject"), receivertest.Status(500), life},
		"otherwise retry of a 429":    {otherwise("retry"), receivertest.Status(429), asked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := breaker.New(breaker.Config{Enabled: true, Cooldown: time.Hour, CooldownMax: time.Hour, Concurrency: 100}, start)
			g := newBreakerRig(t, c.route, b)
			g.Always(c.answer)
			for i := range 100 {
				m := record("{}")
				m.ID = int64(i + 1)
				g.clock.advance(time.Millisecond)
				g.Deliver(context.Background(), m, due())
			}
			got := life
			switch {
			case b.Status(g.clock.now()).Open():
				got = fault
			case !b.Turn(g.clock.now(), 99).Go:
				got = asked
			}
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// While the destination is down every fault is held, whatever its status; a reject and a rule's word stay what they are.
func TestFaultsAreHeldWhileOpen(t *testing.T) {
	t.Parallel()
	b := breaker.New(breaker.Config{Enabled: true, Cooldown: time.Hour, CooldownMax: time.Hour, Concurrency: 100}, start.Add(-time.Hour))
	for i := range 5 {
		b.Judge(start, breaker.Result{Message: int64(1000 + i), First: true, Answer: breaker.Unavailable})
	}
	g := newBreakerRig(t, "", b)
	for code := 200; code <= 599; code++ {
		g.Always(receivertest.Status(code))
		del := due()
		del.Attempts = 4 // the last one
		got := g.Deliver(context.Background(), record("{}"), del)
		switch {
		case code < 300:
			if got.Status != message.StatusDelivered {
				t.Errorf("%d: %+v", code, got)
			}
		case rejected(code):
			if got.Status != message.StatusFailed || got.Reason != message.Rejected || !got.Counted {
				t.Errorf("%d: %+v", code, got)
			}
		default:
			wantPending(t, fmt.Sprint(code), got, false, 5*time.Second)
			if got.Attempt.Verdict != message.Hold || code != 429 && got.Detail == "" {
				t.Errorf("%d: %+v", code, got.Attempt)
			}
		}
	}
}

func rejected(code int) bool {
	switch code {
	case http.StatusBadRequest, 405, 406, 410, 411, 413, 414, 415, 422, 501:
		return true
	}
	return false
}

// The last attempt is not burnt at a destination that was never there, and is at one that answers others.
func TestLastAttemptNeedsASignOfLife(t *testing.T) {
	t.Parallel()
	b := breaker.New(breaker.Config{Enabled: true, Cooldown: time.Hour, CooldownMax: time.Hour, Concurrency: 100}, start)
	g := newBreakerRig(t, "", b)
	g.On("bad", receivertest.Status(504))
	bad := func(own time.Time) message.Delivery {
		d := *due()
		d.Attempts, d.Requests, d.OwnSince = 4, 4, own
		return d
	}
	m := record("{}")
	m.ID, m.Key = 7, "bad"
	d := bad(start)
	g.clock.advance(time.Minute)
	wantPending(t, "never there", g.Deliver(context.Background(), m, &d), false, time.Minute+30*time.Second)
	other := record("{}")
	other.ID = 8
	g.Deliver(context.Background(), other, due())
	if got := g.Deliver(context.Background(), m, &d); got.Reason != message.Exhausted || !got.Counted {
		t.Errorf("%+v", got)
	}
}
