package worker_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/forward"
	"github.com/ferry-forward/ferry/internal/forward/breaker"
	"github.com/ferry-forward/ferry/internal/message"
)

// down returns a breaker that is open, with the first probe after the cooldown.
func down(cooldown time.Duration, concurrency int) *breaker.Breaker {
	b := breaker.New(breaker.Config{Enabled: true, Cooldown: cooldown, CooldownMax: time.Hour, Concurrency: concurrency},
		time.Now().Add(-time.Hour))
	for i := range 5 {
		b.Judge(time.Now(), breaker.Result{Message: int64(-1 - i), Answer: breaker.Fault})
	}
	return b
}

// judged delivers by a breaker, as forward.Deliverer does.
func judged(b *breaker.Breaker, a func(*message.Message) breaker.Answer) deliverFunc {
	return func(_ context.Context, m *message.Message, d *message.Delivery) forward.Result {
		answer := a(m)
		b.Judge(time.Now(), breaker.Result{Message: m.ID, First: d.Requests == 0, StartedAt: time.Now(), Answer: answer})
		if answer == breaker.Life {
			return delivered()
		}
		return holdFor(50 * time.Millisecond)
	}
}

// While the destination is down nothing is sent, and jobs that were fetched are given back after hold_max, so that others
// get to wait too.
func TestJobsAreGivenBackWhileOpen(t *testing.T) {
	t.Parallel()
	g := newRig(t, 20)
	g.add(200)
	b := down(time.Hour, 2)
	g.start(options{concurrency: 2, breaker: b, holdMax: 100 * time.Millisecond}, func(context.Context, *message.Message, *message.Delivery) forward.Result {
		t.Error("a request")
		return delivered()
	})
	g.is("true", `SELECT (count(*) >= 5)::text FROM ferry.river_job WHERE (metadata->>'snoozes')::int >= 1`)
	g.is("200", `SELECT count(*)::text FROM ferry.deliveries WHERE status = 'pending' AND requests = 0 AND attempts = 0`)
}

// One probe at a time goes out while the destination is down; when one is answered, everything flows.
func TestProbeOpensTheGate(t *testing.T) {
	t.Parallel()
	g := newRig(t, 20)
	g.add(100)
	b := down(50*time.Millisecond, 10)
	var out, most, probes atomic.Int64
	answer := judged(b, func(*message.Message) breaker.Answer {
		if probes.Add(1) <= 3 {
			return breaker.Unavailable
		}
		return breaker.Life
	})
	g.start(options{breaker: b, holdMax: time.Second}, func(ctx context.Context, m *message.Message, d *message.Delivery) forward.Result {
		n := out.Add(1)
		defer out.Add(-1)
		if probes.Load() < 3 { // a probe takes its time, in which others could go out
			<-time.After(100 * time.Millisecond)
			most.Store(max(most.Load(), n))
		}
		return answer(ctx, m, d)
	})
	g.is("100", `SELECT count(*)::text FROM ferry.deliveries WHERE status = 'delivered'`)
	g.is("103", `SELECT sum(requests)::text FROM ferry.deliveries`)
	g.is("100", `SELECT sum(attempts)::text FROM ferry.deliveries`)
	if n := most.Load(); n != 1 {
		t.Errorf("%d probes at a time", n)
	}
}

// What is too old to be sent fails while nothing is sent.
func TestExpiredNeedsNoTurn(t *testing.T) {
	t.Parallel()
	g := newRig(t, 20)
	g.add(20)
	g.start(options{concurrency: 2, breaker: down(time.Hour, 2), expired: true}, func(context.Context, *message.Message, *message.Delivery) forward.Result {
		return forward.Result{Status: message.StatusFailed, Reason: message.Expired}
	})
	g.is("20", `SELECT count(*)::text FROM ferry.deliveries WHERE status = 'failed' AND reason = 'expired'`)
}

// permits is a limit whose permits a test hands out.
type permits struct {
	mu   sync.Mutex
	left int
	most int // waited at one time
}

func (p *permits) Take(_ time.Time, waiting int) (bool, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most = max(p.most, waiting)
	if p.left == 0 {
		return false, 5 * time.Millisecond
	}
	p.left--
	return true, 0
}

func (p *permits) give(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left += n
}

func (p *permits) waited() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}

// A message that waits for the limit holds no slot and costs no attempt.
func TestLimit(t *testing.T) {
	t.Parallel()
	g := newRig(t, 1)
	g.add(30)
	limit := &permits{}
	var out atomic.Int64
	g.start(options{concurrency: 5, jobSize: 1, limit: limit}, func(context.Context, *message.Message, *message.Delivery) forward.Result {
		out.Add(1)
		return delivered()
	})
	const done = `SELECT count(*)::text FROM ferry.deliveries WHERE status = 'delivered'`
	// More wait than there are slots: no slot is held by who waits.
	g.is("true", `SELECT (count(*) > 5)::text FROM ferry.river_job WHERE state = 'running'`)
	eventually(t, func() bool { return limit.waited() > 5 })
	if n := out.Load(); n != 0 {
		t.Errorf("%d requests without a permit", n)
	}
	limit.give(7)
	g.is("7", done)
	limit.give(100)
	g.is("30", done)
	g.is("30 30", `SELECT sum(attempts) || ' ' || sum(requests) FROM ferry.deliveries`)
}

// The limit is told of all messages that wait, also those behind the first of a group.
func TestLimitKnowsWhatWaits(t *testing.T) {
	t.Parallel()
	g := newRig(t, 10)
	g.add(30)
	limit := &permits{}
	g.start(options{concurrency: 10, limit: limit}, func(context.Context, *message.Message, *message.Delivery) forward.Result {
		return delivered()
	})
	eventually(t, func() bool { return limit.waited() == 30 })
	limit.give(30)
	g.is("30", `SELECT count(*)::text FROM ferry.deliveries WHERE status = 'delivered'`)
}
