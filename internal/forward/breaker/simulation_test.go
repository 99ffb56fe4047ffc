package breaker_test

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/forward/breaker"
	"github.com/ferry-forward/ferry/internal/message"
)

// sim drives a breaker as the forwarder does, in simulated time: messages arrive at random, wait for their turn, are sent,
// and retried or held by the default route's backoff.
type sim struct {
	b       *breaker.Breaker
	r       *rand.Rand
	dest    destination
	now     time.Time
	end     time.Time
	arrive  time.Duration // mean time between two messages
	events  events
	nextID  int64
	ready   []*msg
	flight  int
	asking  bool
	changes []breaker.Change
	sums    sums
}

type msg struct {
	id       int64
	bad      bool
	born     time.Time
	trouble  time.Time
	attempts int
	requests int
}

// sums is what a run comes to.
type sums struct {
	requests, delivered, goodFailed, badFailed, waiting int
	opened, openWhileFlowing                            int
	waits                                               []time.Duration
	inOutage                                            int // requests sent while the destination was down
}

// destination answers a request and says how long that takes.
type destination func(s *sim, m *msg) (breaker.Answer, time.Duration)

const (
	concurrency = 100
	maxAttempts = 5
	quick       = 20 * time.Millisecond
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (s *sim) t() time.Duration { return s.now.Sub(start) }

// simulate runs a destination for d; no message arrives in the last five minutes.
func simulate(arrive, d time.Duration, dest destination) *sim {
	s := &sim{r: rand.New(rand.NewPCG(1, 2)), dest: dest, now: start, end: start.Add(d), arrive: arrive}
	s.b = breaker.New(breaker.Config{
		Enabled: true, Cooldown: 5 * time.Second, CooldownMax: 60 * time.Second, Concurrency: concurrency,
		Changed: func(c breaker.Change) { s.changes = append(s.changes, c) },
	}, start)
	s.at(0, s.arrival)
	for len(s.events) > 0 {
		e := heap.Pop(&s.events).(event)
		if e.at.After(s.end) {
			break
		}
		s.now = e.at
		e.do()
	}
	s.sums.waiting = int(s.nextID) - s.sums.delivered - s.sums.goodFailed - s.sums.badFailed
	for _, c := range s.changes {
		if c.To == message.BreakerOpen {
			s.sums.opened++
			if c.At.Sub(start) < d-5*time.Minute {
				s.sums.openWhileFlowing++
			}
		}
	}
	return s
}

func (s *sim) arrival() {
	s.nextID++
	s.ready = append(s.ready, &msg{id: s.nextID, born: s.now})
	if s.t() < s.end.Sub(start)-5*time.Minute {
		s.at(time.Duration(s.r.ExpFloat64()*float64(s.arrive)), s.arrival)
	}
	s.pump()
}

func (s *sim) pump() {
	for len(s.ready) > 0 {
		turn := s.b.Turn(s.now, s.flight)
		if !turn.Go {
			if !turn.Again.IsZero() && !s.asking {
				s.asking = true
				s.at(turn.Again.Sub(s.now), func() { s.asking = false; s.pump() })
			}
			return
		}
		i := 0
		if turn.Probe {
			waiting := make([]breaker.Waiting, min(100, len(s.ready)))
			for i := range waiting {
				waiting[i] = breaker.Waiting{Message: s.ready[i].id, Attempts: s.ready[i].attempts}
			}
			i = s.b.Choose(waiting)
			s.b.Probe(s.ready[i].id)
		}
		m := s.ready[i]
		if i == 0 {
			s.ready = s.ready[1:]
		} else {
			s.ready = slices.Delete(s.ready, i, i+1)
		}
		s.flight++
		s.sums.requests++
		m.requests++
		sent := s.now
		answer, takes := s.dest(s, m)
		s.at(takes, func() { s.done(m, answer, sent) })
	}
}

func (s *sim) done(m *msg, a breaker.Answer, sent time.Time) {
	s.flight--
	hold := s.b.Judge(s.now, breaker.Result{
		Message: m.id, First: m.requests == 1, Last: m.attempts == maxAttempts-1, Trouble: m.trouble, StartedAt: sent, Answer: a,
	})
	s.b.Left(m.id)
	age := time.Duration(0)
	if m.trouble.IsZero() {
		m.trouble = s.now
	} else {
		age = s.now.Sub(m.trouble)
	}
	jitter := 0.8 + 0.4*s.r.Float64()
	switch {
	case a == breaker.Life:
		s.sums.delivered++
		s.sums.waits = append(s.sums.waits, s.now.Sub(m.born))
	case hold || a == breaker.NotReached || a == breaker.Asked:
		wait := min(300*time.Second, max(5*time.Second, age/2))
		s.at(time.Duration(float64(wait)*jitter), func() { s.back(m) })
	default:
		m.attempts++
		switch {
		case m.attempts < maxAttempts:
			wait := 5 * time.Second << (m.attempts - 1)
			s.at(time.Duration(float64(wait)*jitter), func() { s.back(m) })
		case m.bad:
			s.sums.badFailed++
		default:
			s.sums.goodFailed++
		}
	}
	s.pump()
}

func (s *sim) back(m *msg) { s.ready = append(s.ready, m); s.pump() }

func (s *sim) at(in time.Duration, do func()) {
	heap.Push(&s.events, event{s.now.Add(in), len(s.events) + s.sums.requests, do})
}

type event struct {
	at time.Time
	n  int
	do func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// badRecords refuses a share of the messages for ever.
func badRecords(share float64, a breaker.Answer) destination {
	return func(s *sim, m *msg) (breaker.Answer, time.Duration) {
		if m.requests == 1 {
			m.bad = s.r.Float64() < share
		}
		if m.bad {
			return a, quick
		}
		return breaker.Life, quick
	}
}

// outage refuses everything from one time to another.
func outage(from, to time.Duration, a breaker.Answer, takes time.Duration) destination {
	return func(s *sim, _ *msg) (breaker.Answer, time.Duration) {
		if from <= s.t() && s.t() < to {
			s.sums.inOutage++
			return a, takes
		}
		return breaker.Life, quick
	}
}

// brownOut refuses a share of the requests.
func brownOut(share float64, a breaker.Answer) destination {
	return func(s *sim, _ *msg) (breaker.Answer, time.Duration) {
		if s.r.Float64() < share {
			return a, quick
		}
		return breaker.Life, quick
	}
}

const (
	fast   = time.Second / 20 // 20 messages a second
	minute = time.Minute
)

func (s *sim) log(t *testing.T) {
	t.Helper()
	t.Logf("%+v", struct {
		Requests, Delivered, GoodFailed, BadFailed, Waiting, Opened, WhileFlowing, InOutage int
		P99                                                                                 time.Duration
	}{
		s.sums.requests, s.sums.delivered, s.sums.goodFailed, s.sums.badFailed, s.sums.waiting, s.sums.opened,
		s.sums.openWhileFlowing, s.sums.inOutage, s.p99(),
	})
}

func (s *sim) p99() time.Duration {
	waits := slices.Sorted(slices.Values(s.sums.waits))
	if len(waits) == 0 {
		return 0
	}
	return waits[len(waits)*99/100]
}

// Bad records in any share neither close a healthy route nor delay the good ones, and no good one fails for them.
func TestBadRecords(t *testing.T) {
	t.Parallel()
	for _, a := range []breaker.Answer{breaker.Fault, breaker.Unavailable} {
		for _, share := range []float64{.1, .3, .5, .7, .9} {
			if a == breaker.Unavailable && share != .3 && share != .7 {
				continue
			}
			s := simulate(fast, 10*minute, badRecords(share, a))
			s.log(t)
			if s.sums.goodFailed > 0 || s.sums.openWhileFlowing > 0 || s.p99() > time.Second {
				t.Errorf("%v of the records bad (%v): %d good ones failed, opened %d times, p99 %s", share, a, s.sums.goodFailed,
					s.sums.openWhileFlowing, s.p99())
			}
			if share < .4 && s.sums.badFailed < int(share*4_000) {
				t.Errorf("%v of the records bad: only %d of them failed", share, s.sums.badFailed)
			}
		}
	}
	s := simulate(minute, 4*time.Hour, badRecords(.3, breaker.Fault))
	s.log(t)
	// Five bad ones in a row are an outage, as far as anybody can tell. A good one ends it at the next probe.
	if s.sums.goodFailed > 0 || s.sums.waiting > 0 || s.p99() > time.Minute {
		t.Errorf("a quiet route: %d good ones failed, %d wait, p99 %s", s.sums.goodFailed, s.sums.waiting, s.p99())
	}
}

// One bad message alone fails after its attempts, on a route with others and on one without.
func TestOneBadMessage(t *testing.T) {
	t.Parallel()
	for _, arrive := range []time.Duration{fast, minute, 20 * time.Hour} {
		for _, a := range []breaker.Answer{breaker.Fault, breaker.Unavailable} {
			requests := 0
			s := simulate(arrive, 20*minute, func(_ *sim, m *msg) (breaker.Answer, time.Duration) {
				if m.id != 1 {
					return breaker.Life, quick
				}
				m.bad = true
				requests++
				return a, quick
			})
			if arrive == 20*time.Hour && a == breaker.Unavailable {
				// Nobody has ever seen this destination alive: max_age decides.
				if s.sums.badFailed > 0 {
					t.Error("a message failed at a destination that was never up")
				}
				continue
			}
			if s.sums.badFailed != 1 || requests != maxAttempts || s.sums.opened > 0 {
				t.Errorf("one message each %s (%v): %d failed after %d requests, opened %d times", arrive, a, s.sums.badFailed,
					requests, s.sums.opened)
			}
		}
	}
}

// In an outage no message fails and next to nothing is sent; afterwards all are delivered. A fault that a live application
// answers, on a quiet route, is the exception: it obeys max_attempts.
func TestOutages(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]struct {
		answer breaker.Answer
		takes  time.Duration
	}{
		"500": {breaker.Fault, quick}, "503": {breaker.Unavailable, quick},
		"refused": {breaker.NotReached, time.Millisecond}, "timeout": {breaker.Unavailable, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := simulate(fast, 30*minute, outage(5*minute, 20*minute, o.answer, o.takes))
			s.log(t)
			if s.sums.goodFailed > 0 || s.sums.waiting > 0 || s.sums.opened == 0 {
				t.Errorf("%+v", s.sums)
			}
			// What was on its way or came within 5 s, and a probe each minute at the end.
			if s.sums.inOutage > 2*concurrency+300+25 {
				t.Errorf("%d requests were sent in the outage", s.sums.inOutage)
			}
			s = simulate(minute/2, 40*minute, outage(5*minute, 25*minute, o.answer, o.takes))
			s.log(t)
			if s.sums.waiting > 0 || s.sums.goodFailed > 0 && o.answer != breaker.Fault || s.sums.goodFailed > 5 {
				t.Errorf("a quiet route: %+v", s.sums)
			}
		})
	}
}

// In a brown-out of well over half of the requests no message fails; below it one fails with chance p^max_attempts.
func TestBrownOuts(t *testing.T) {
	t.Parallel()
	for _, a := range []breaker.Answer{breaker.Fault, breaker.Unavailable} {
		for share, most := range map[float64]int{.2: 25, .4: 250, .7: 0, .9: 0} {
			s := simulate(fast, 12*minute, brownOut(share, a))
			s.log(t)
			if s.sums.goodFailed > most || s.sums.openWhileFlowing > 0 {
				t.Errorf("%v of the requests fail: %d messages failed, opened %d times", share, s.sums.goodFailed, s.sums.openWhileFlowing)
			}
			if share < .5 && s.sums.waiting > 5 {
				t.Errorf("%v of the requests fail: %d still wait", share, s.sums.waiting)
			}
		}
	}
}
