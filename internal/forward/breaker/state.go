package breaker

import (
	"fmt"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

// settled is how long a destination must have been healthy again before it is told, unless a probe told it.
const settled = 5 * time.Second

// Status is the state for people and metrics.
type Status struct {
	State    message.BreakerState
	Since    time.Time
	Evidence string // for the state; empty for one that has always been healthy
}

// Open says whether nothing goes out but probes.
func (s Status) Open() bool { return s.State == message.BreakerOpen }

// Status returns the state. It also notices what comes with time alone: evidence that is too old.
func (b *Breaker) Status(now time.Time) Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.see(now, Result{})
	return Status{b.state, b.since, b.why}
}

// see tells a change of state. r is the result that brought it, if one did.
func (b *Breaker) see(now time.Time, r Result) {
	state := message.BreakerHealthy
	switch {
	case b.open:
		state = message.BreakerOpen
	case b.degraded(now):
		state = message.BreakerDegraded
	}
	if state == b.state {
		b.betterAt = time.Time{}
		return
	}
	if b.state == message.BreakerDegraded && state == message.BreakerHealthy {
		// At just half of the requests it would be told with each of them.
		if b.betterAt.IsZero() {
			b.betterAt = now
		}
		if now.Sub(b.betterAt) < settled {
			return
		}
	}
	b.betterAt = time.Time{}
	c := Change{At: now, From: b.state, To: state, Evidence: b.evidence(now, state, r)}
	b.state, b.since, b.why = state, now, c.Evidence
	if b.cfg.Changed != nil {
		b.cfg.Changed(c)
	}
}

// evidence says from what the state is concluded.
func (b *Breaker) evidence(now time.Time, state message.BreakerState, r Result) string {
	all, faults := b.share(now)
	share := fmt.Sprintf("%d of the last %d first requests failed", faults, all)
	last := ""
	if r.What != "" {
		last = "; last: " + r.What
	}
	if b.state == message.BreakerOpen {
		return fmt.Sprintf("a probe was answered after %s; %s%s", round(now.Sub(b.since)), share, last)
	}
	if state != message.BreakerOpen {
		return share + last
	}
	without := "no sign of life for " + round(b.quiet(now)).String()
	if b.lastLife.IsZero() {
		without = "no sign of life since the start, " + round(b.quiet(now)).String() + " ago"
	}
	if b.firstFaults >= manyFirst {
		return fmt.Sprintf("%s, %d first requests failed%s", without, b.firstFaults, last)
	}
	return fmt.Sprintf("%s, %d different messages failed%s", without, len(b.faulty), last)
}

func round(d time.Duration) time.Duration {
	if d > time.Minute {
		return d.Round(time.Second)
	}
	return d.Round(10 * time.Millisecond)
}
