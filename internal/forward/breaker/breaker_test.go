package breaker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/forward/breaker"
	"github.com/ferry-forward/ferry/internal/message"
)

// rig is a breaker with a clock, whose messages are new ones unless a test says otherwise.
type rig struct {
	t       *testing.T
	b       *breaker.Breaker
	now     time.Time
	id      int64
	changes []breaker.Change
}

func newRig(t *testing.T, change func(*breaker.Config)) *rig {
	t.Helper()
	g := &rig{t: t, now: start}
	cfg := breaker.Config{
		Enabled: true, Cooldown: 5 * time.Second, CooldownMax: 60 * time.Second, Concurrency: 100,
		Changed: func(c breaker.Change) { g.changes = append(g.changes, c) },
	}
	if change != nil {
		change(&cfg)
	}
	g.b = breaker.New(cfg, start)
	return g
}

func (g *rig) pass(d time.Duration) { g.now = g.now.Add(d) }

// first judges the first request of a new message.
func (g *rig) first(a breaker.Answer) (hold bool) {
	g.id++
	return g.judge(breaker.Result{Message: g.id, First: true, Answer: a})
}

func (g *rig) judge(r breaker.Result) bool {
	r.StartedAt = g.now.Add(-time.Millisecond)
	return g.b.Judge(g.now, r)
}

func (g *rig) open() {
	g.t.Helper()
	g.pass(10 * time.Second)
	for range 5 {
		g.first(breaker.Fault)
	}
	g.is(message.BreakerOpen)
}

func (g *rig) is(want message.BreakerState) {
	g.t.Helper()
	if got := g.b.Status(g.now); got.State != want {
		g.t.Fatalf("%s (%s), want %s", got.State, got.Evidence, want)
	}
}

// allowed is how many requests may be in flight now.
func (g *rig) allowed() int {
	n := 0
	for g.b.Turn(g.now, n).Go {
		if n++; n > 1000 {
			g.t.Fatal("no bound")
		}
	}
	return n
}

// probe has a message probe, with the given answer.
func (g *rig) probe(a breaker.Answer) {
	g.t.Helper()
	turn := g.b.Turn(g.now, 0)
	if !turn.Go || !turn.Probe {
		g.t.Fatalf("no probe is due: %+v", turn)
	}
	g.b.Probe(1000)
	if again := g.b.Turn(g.now, 1); again.Go {
		g.t.Fatal("a second probe goes out")
	}
	if hold := g.judge(breaker.Result{Message: 1000, Answer: a}); hold != (a >= breaker.Fault) {
		g.t.Errorf("hold %v", hold)
	}
	g.b.Left(1000)
}

func TestOpensAfterAHundredFirstRequests(t *testing.T) {
	t.Parallel()
	g := newRig(t, nil)
	g.first(breaker.Life)
	for i := range 100 {
		g.pass(time.Millisecond)
		// With the sign of life, the 19th fault is the 20th first request: enough to call it degraded.
		if hold := g.first(breaker.Unavailable); hold != (i >= 18) {
			t.Fatalf("fault %d: hold %v", i+1, hold)
		}
	}
	g.is(message.BreakerOpen)
}

// Repeats are no evidence about the destination, except that nothing else lives.
func TestRepeatsSayNothing(t *testing.T) {
	t.Parallel()
	g := newRig(t, nil)
	g.first(breaker.Life)
	for i := range 200 {
		g.pass(10 * time.Millisecond)
		if g.judge(breaker.Result{Message: int64(i % 4), Answer: breaker.Fault}) {
			t.Fatal("held")
		}
	}
	g.pass(time.Hour)
	g.judge(breaker.Result{Message: 3, Answer: breaker.Fault})
	g.is(message.BreakerHealthy)
	g.judge(breaker.Result{Message: 4, Answer: breaker.Fault})
	g.is(message.BreakerOpen) // the fifth message, and an hour without a sign of life
}

func TestFiveMessagesWithinFiveSecondsAreNotEnough(t *testing.T) {
	t.Parallel()
	g := newRig(t, nil)
	g.pass(time.Hour)
	g.first(breaker.Life)
	g.pass(4999 * time.Millisecond)
	for range 6 {
		g.first(breaker.Fault)
	}
	g.is(message.BreakerHealthy)
	g.pass(time.Millisecond)
	g.first(breaker.Fault)
	g.is(message.BreakerOpen)
}

// Any answer that is no fault is a sign of life.
func TestSignsOfLife(t *testing.T) {
	t.Parallel()
	for _, a := range []breaker.Answer{breaker.Life, breaker.Asked} {
		g := newRig(t, nil)
		for range 10 {
			for range 99 {
				g.pass(time.Millisecond)
				g.judge(breaker.Result{Message: g.id, First: true, Answer: breaker.Fault})
			}
			g.judge(breaker.Result{Message: 1, Answer: a})
		}
		if s := g.b.Status(g.now); s.Open() {
			t.Errorf("answer %d: %+v", a, s)
		}
	}
}

func TestDegraded(t *testing.T) {
	t.Parallel()
	g := newRig(t, nil)
	for i := range 19 {
		if g.first([]breaker.Answer{breaker.Fault, breaker.Life}[i%2]) {
			t.Error("held before there was enough to judge by")
		}
	}
	g.is(message.BreakerHealthy)
	g.first(breaker.Life)
	g.is(message.BreakerDegraded)
	if n := g.allowed(); n != 25 {
		t.Errorf("%d requests may be in flight, want a quarter of 100", n)
	}
	if !g.judge(breaker.Result{Message: 1, Answer: breaker.Fault}) {
		t.Error("a fault burns an attempt")
	}
	g.first(breaker.Life)
	g.is(message.BreakerDegraded) // told as healthy when it has been for a while
	if n := g.allowed(); n != 100 {
		t.Errorf("%d requests may be in flight", n)
	}
	g.pass(5 * time.Second)
	g.is(message.BreakerHealthy)
	g.judge(breaker.Result{Message: 1, Answer: breaker.Life})
	for range 40 {
		g.first(breaker.Fault)
	}
	g.is(message.BreakerDegraded)
	g.pass(5*time.Minute + time.Second)
	g.is(message.BreakerDegraded)
	g.pass(5 * time.Second)
	g.is(message.BreakerHealthy) // what was then is forgotten
	if n := g.allowed(); n != 100 {
		t.Errorf("%d requests may be in flight", n)
	}
}

func TestProbes(t *testing.T) {
	t.Parallel()
	g := newRig(t, nil)
	g.open()
	for _, wait := range []time.Duration{5, 10, 20, 40, 60, 60} {
		wait *= time.Second
		turn := g.b.Turn(g.now, 0)
		if turn.Go || !turn.Again.Equal(g.now.Add(wait)) {
			t.Fatalf("the next probe: %+v, want in %s", turn, wait)
		}
		g.pass(wait - time.Millisecond)
		if g.b.Turn(g.now, 0).Go {
			t.Fatal("a probe too early")
		}
		g.pass(time.Millisecond)
		if !g.judge(breaker.Result{Message: 7, Answer: breaker.Fault, First: true}) {
			t.Error("a fault of a request that was in flight burns an attempt")
		}
		g.probe(breaker.Fault)
	}
	// A sign of life of a request that was in flight closes nothing.
	g.judge(breaker.Result{Message: 7, Answer: breaker.Life})
	g.is(message.BreakerOpen)
	g.pass(time.Minute)
	g.probe(breaker.Life)
	g.is(message.BreakerHealthy)
	for _, want := range []int{1, 2, 4, 8, 16, 32, 64, 100, 100} {
		if n := g.allowed(); n != want {
			t.Fatalf("%d requests may be in flight, want %d", n, want)
		}
		g.first(breaker.Life)
	}
	g.open()
	if turn := g.b.Turn(g.now, 0); !turn.Again.Equal(g.now.Add(5 * time.Second)) {
		t.Errorf("the cooldown did not start anew: %+v", turn)
	}
}

// A probe that came to no result leaves its place.
func TestProbeWithoutResult(t *testing.T) {
	t.Parallel()
	g := newRig(t, nil)
	g.open()
	g.pass(5 * time.Second)
	g.b.Probe(1)
	if g.b.Turn(g.now, 1).Go {
		t.Error("two probes")
	}
	g.b.Left(2)
	g.b.Left(1)
	if turn := g.b.Turn(g.now, 0); !turn.Go || !turn.Probe {
		t.Errorf("no probe: %+v", turn)
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	g := newRig(t, nil)
	g.open()
	waiting := []breaker.Waiting{{Message: 5, Attempts: 1}, {Message: 3}, {Message: 9, Attempts: 2}, {Message: 4}}
	var order []int64
	for range 5 {
		i := g.b.Choose(waiting)
		order = append(order, waiting[i].Message)
		g.b.Probe(waiting[i].Message)
		g.b.Left(waiting[i].Message)
	}
	if want := []int64{4, 3, 4, 3, 4}; !slices.Equal(order, want) {
		t.Errorf("probed with %v, want %v", order, want)
	}
}

// Asked to wait: half as many at a time, and then one more for each round.
func TestAskedToWait(t *testing.T) {
	t.Parallel()
	g := newRig(t, nil)
	g.pass(time.Second)
	before := g.now
	for _, want := range []int{50, 25, 12, 6, 3, 1, 1} {
		g.pass(10 * time.Millisecond)
		g.first(breaker.Asked)
		// One that was on its way already asks for nothing more.
		g.b.Judge(g.now, breaker.Result{Message: 1, Answer: breaker.Asked, StartedAt: before})
		if n := g.allowed(); n != want {
			t.Fatalf("%d requests may be in flight, want %d", n, want)
		}
	}
	rounds := 0
	for ; g.allowed() < 20; rounds++ {
		for range g.allowed() {
			g.first(breaker.Life)
		}
	}
	if rounds < 12 || rounds > 25 {
		t.Errorf("20 at a time after %d rounds", rounds)
	}
	g.is(message.BreakerHealthy)
}

func TestLastAttempt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer breaker.Answer
		life   time.Duration // relative to the message's first fault
		hold   bool
	}{
		"unavailable, no sign of life since": {breaker.Unavailable, -time.Second, true},
		"unavailable, a sign of life since":  {breaker.Unavailable, time.Second, false},
		"answered, no sign of life since":    {breaker.Fault, -time.Second, false},
		"not reached":                        {breaker.NotReached, time.Second, true},
	} {
		g := newRig(t, nil)
		g.pass(time.Minute)
		trouble := g.now
		g.pass(c.life)
		g.judge(breaker.Result{Message: 1, Answer: breaker.Life})
		g.pass(time.Minute)
		for _, last := range []bool{true, false} {
			want := c.hold && (last || c.answer == breaker.NotReached)
			if hold := g.judge(breaker.Result{Message: 2, Last: last, Trouble: trouble, Answer: c.answer}); hold != want {
				t.Errorf("%s, last %v: hold %v", name, last, hold)
			}
		}
	}
}

func TestOff(t *testing.T) {
	t.Parallel()
	g := newRig(t, func(c *breaker.Config) { c.Enabled = false })
	for range 200 {
		g.pass(time.Second)
		if g.first(breaker.Unavailable) {
			t.Fatal("held")
		}
	}
	g.is(message.BreakerHealthy)
	if n := g.allowed(); n != 100 {
		t.Errorf("%d requests may be in flight", n)
	}
	g.first(breaker.Asked)
	if n := g.allowed(); n != 50 {
		t.Errorf("%d requests may be in flight after being asked to wait", n)
	}
}

// Each change is told once, with its evidence.
func TestChanges(t *testing.T) {
	t.Parallel()
	g := newRig(t, nil)
	for range 30 {
		g.first(breaker.Life)
	}
	g.pass(7 * time.Second)
	for range 26 {
		g.judge(breaker.Result{Message: g.id, First: true, Answer: breaker.Fault, What: "HTTP 500"})
		g.id++
	}
	g.pass(time.Minute)
	g.b.Probe(1)
	g.judge(breaker.Result{Message: 1, Answer: breaker.Life, What: "HTTP 204"})
	for range 30 {
		g.judge(breaker.Result{Message: g.id, First: true, Answer: breaker.Life, What: "HTTP 200"})
		g.id++
	}
	g.pass(6 * time.Second)
	g.judge(breaker.Result{Message: g.id, First: true, Answer: breaker.Life, What: "HTTP 200"})
	var told []string
	for _, c := range g.changes {
		told = append(told, fmt.Sprintf("%s→%s: %s", c.From, c.To, c.Evidence))
	}
	want := []string{
		"healthy→open: no sign of life for 7s, 5 different messages failed; last: HTTP 500",
		"open→degraded: a probe was answered after 1m0s; 26 of the last 50 first requests failed; last: HTTP 204",
		"degraded→healthy: 19 of the last 50 first requests failed; last: HTTP 200",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
	if s := g.b.Status(g.now); s.Evidence != g.changes[len(g.changes)-1].Evidence || s.Since.IsZero() {
		t.Errorf("%+v", s)
	}
}
