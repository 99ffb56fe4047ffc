package breaker

import (
	"time"
)

// Turn says whether a request may go out.
type Turn struct {
	Go    bool
	Probe bool // it is a probe: choose the message with Choose, and tell Probe
	// Again is when to ask again if it may not; zero: after the next result.
	Again time.Time
}

// Turn says whether a request may go out while others are in flight.
func (b *Breaker) Turn(now time.Time, inFlight int) Turn {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.see(now, Result{})
	switch {
	case b.open && b.probing != 0:
		return Turn{}
	case b.open && now.Before(b.probeAt):
		return Turn{Again: b.probeAt}
	case b.open:
		return Turn{Go: true, Probe: true}
	}
	return Turn{Go: inFlight < b.allowed(now)}
}

// allowed is how many requests may be in flight.
func (b *Breaker) allowed(now time.Time) int {
	n := b.cfg.Concurrency
	if b.degraded(now) {
		n /= degradedShare
	}
	return max(1, min(n, int(b.limit)))
}

// Waiting is a message that waits for its turn.
type Waiting struct {
	Message  int64 // the newest has the largest
	Attempts int
}

// Choose returns the index of the message to probe with: the one with the fewest attempts, then probes, then the newest.
// One that is to blame itself has more of them than the others.
func (b *Breaker) Choose(waiting []Waiting) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	best := 0
	for i, w := range waiting {
		if b.before(w, waiting[best]) {
			best = i
		}
	}
	return best
}

func (b *Breaker) before(x, y Waiting) bool {
	switch {
	case x.Attempts != y.Attempts:
		return x.Attempts < y.Attempts
	case b.probes[x.Message] != b.probes[y.Message]:
		return b.probes[x.Message] < b.probes[y.Message]
	}
	return x.Message > y.Message
}

// Probe notes that the message goes out as the probe.
func (b *Breaker) Probe(msg int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = msg
	b.probes[msg]++
}

// Left notes that a message which had its turn is done with. A probe that came to no result leaves its place to another.
func (b *Breaker) Left(msg int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.probing == msg {
		b.probing = 0
	}
}
