package breaker

import (
	"sync"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

// Limits of the evidence. They were found by simulation (see the test): fewer messages or less time, and bad records on a
// quiet route look like an outage; more, and an outage burns attempts before it is seen.
const (
	windowSize    = 50              // first requests that are remembered
	windowTime    = 5 * time.Minute // for how long
	windowEnough  = 20              // with fewer there is no judgement
	manyFirst     = 100             // first requests that fail without a sign of life: open
	fewMessages   = 5               // different messages that fail without a sign of life
	silence       = 5 * time.Second // for at least this time: open
	degradedShare = 4               // a degraded route has this part of its concurrency
)

// Config is what a Breaker needs.
type Config struct {
	Enabled     bool          // false: faults are never held, nothing is ever open; asking to wait still slows down
	Cooldown    time.Duration // between two probes, at first
	CooldownMax time.Duration // and at most
	Concurrency int           // requests in flight, at most
	// Changed is called at each change of state, one call at a time. It must not call the breaker. May be nil.
	Changed func(Change)
}

// Change is a change of state with what it was concluded from.
type Change struct {
	At       time.Time
	From, To message.BreakerState
	Evidence string
}

// Answer is what became of a request, as far as it says something about the destination.
type Answer int

// The answers.
const (
	Life        Answer = iota // an answer that is no fault
	Asked                     // 429, or 503 with Retry-After: alive, and asks to wait
	Fault                     // 500, 404, a rule's retry, …: something answered, not as it should
	Unavailable               // timeout, reset, 502, 503, 504: nothing that could have taken the message answered
	NotReached                // the request surely never reached the destination
)

func (a Answer) fault() bool { return a >= Fault }

// Result is one request that was sent (or tried to be).
type Result struct {
	Message   int64
	First     bool      // it is the message's very first request
	Last      bool      // the message has no further attempt
	Trouble   time.Time // the message's first fault; zero: this is the first, if it is one
	StartedAt time.Time
	Answer    Answer
	What      string // the answer for people: HTTP 503, timeout
}

// Breaker is the state of one destination. It may be used from several goroutines.
type Breaker struct {
	cfg     Config
	started time.Time

	mu    sync.Mutex
	state message.BreakerState
	since time.Time
	why   string
	// betterAt is since when it is healthy while it still counts as degraded; zero: it is not.
	betterAt     time.Time
	window       []first // the oldest first; windowFaults of them failed
	windowFaults int

	lastLife    time.Time      // zero: none yet
	firstFaults int            // first requests that failed since then
	faulty      map[int64]bool // messages that failed since then, at most fewMessages

	open     bool
	cooldown time.Duration
	probeAt  time.Time
	probing  int64         // the message that is out as probe; 0: none
	probes   map[int64]int // probes of each message while it is open

	limit   float64 // requests in flight that the answers allow
	ceiling float64 // to which the limit doubles; above, it grows by one for each round
	cutAt   time.Time
}

// first is what became of a first request.
type first struct {
	at    time.Time
	fault bool
}

// New returns a healthy breaker.
func New(cfg Config, now time.Time) *Breaker {
	all := float64(max(1, cfg.Concurrency))
	return &Breaker{
		cfg: cfg, started: now, state: message.BreakerHealthy, since: now, cooldown: cfg.Cooldown,
		faulty: map[int64]bool{}, probes: map[int64]int{}, limit: all, ceiling: all,
	}
}

// Judge takes a request's result and says, of a fault, whether it is to be held: then it burns no attempt.
func (b *Breaker) Judge(now time.Time, r Result) (hold bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	probe := b.probing == r.Message && b.probing != 0
	if probe {
		b.probing = 0
	}
	if r.First {
		b.remember(now, r.Answer.fault())
	}
	if r.Answer.fault() {
		hold = b.fault(now, r, probe)
	} else {
		b.life(now, r, probe)
	}
	b.see(now, r)
	return hold
}

// remember keeps what became of a first request.
func (b *Breaker) remember(now time.Time, fault bool) {
	if len(b.window) == windowSize {
		b.forget()
	}
	b.window = append(b.window, first{now, fault})
	if fault {
		b.windowFaults++
	}
}

func (b *Breaker) forget() {
	if b.window[0].fault {
		b.windowFaults--
	}
	b.window = append(b.window[:0], b.window[1:]...)
}

// share is how many first requests there were lately, and how many of them failed.
func (b *Breaker) share(now time.Time) (all, faults int) {
	for len(b.window) > 0 && now.Sub(b.window[0].at) > windowTime {
		b.forget()
	}
	return len(b.window), b.windowFaults
}

func (b *Breaker) degraded(now time.Time) bool {
	all, faults := b.share(now)
	return b.cfg.Enabled && all >= windowEnough && 2*faults >= all
}

// life is a sign of life.
func (b *Breaker) life(now time.Time, r Result, probe bool) {
	b.lastLife, b.firstFaults = now, 0
	clear(b.faulty)
	if b.open && probe {
		b.open, b.cooldown = false, b.cfg.Cooldown
		clear(b.probes)
		b.limit, b.ceiling = 1, float64(b.cfg.Concurrency)
	}
	switch {
	case r.Answer != Asked:
		b.grow(probe)
	case r.StartedAt.After(b.cutAt):
		// Those that were on their way when the limit was cut do not cut it again.
		b.limit = max(1, b.limit/2)
		b.ceiling, b.cutAt = b.limit, now
	}
}

func (b *Breaker) grow(probe bool) {
	switch {
	case probe: // one at first
	case b.limit < b.ceiling:
		b.limit = min(b.ceiling, 2*b.limit)
	default:
		b.limit = min(float64(b.cfg.Concurrency), b.limit+1/b.limit)
	}
}

// fault says whether the fault is held.
func (b *Breaker) fault(now time.Time, r Result, probe bool) bool {
	if !b.cfg.Enabled {
		return false
	}
	switch {
	case !b.open:
		b.against(now, r)
	case probe:
		b.cooldown = min(b.cfg.CooldownMax, 2*b.cooldown)
		b.probeAt = now.Add(b.cooldown)
	}
	switch {
	case b.open, b.degraded(now), r.Answer == NotReached:
		return true
	case r.Answer == Unavailable && r.Last:
		// The message has not met a destination that lives. A first fault has met nothing yet.
		return r.Trouble.IsZero() || b.lastLife.Before(r.Trouble)
	}
	return false
}

// against adds a fault to the evidence, and opens when it is enough.
func (b *Breaker) against(now time.Time, r Result) {
	if len(b.faulty) < fewMessages {
		b.faulty[r.Message] = true
	}
	if r.First {
		b.firstFaults++
	}
	if b.firstFaults >= manyFirst || len(b.faulty) >= fewMessages && b.quiet(now) >= silence {
		b.open, b.cooldown = true, b.cfg.Cooldown
		b.probeAt = now.Add(b.cooldown)
	}
}

// quiet is how long there was no sign of life.
func (b *Breaker) quiet(now time.Time) time.Duration {
	if b.lastLife.IsZero() {
		return now.Sub(b.started)
	}
	return now.Sub(b.lastLife)
}
