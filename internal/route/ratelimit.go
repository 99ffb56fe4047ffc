package route

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// RateLimit bounds how many requests a second a route sends. The zero value is no limit.
type RateLimit struct {
	PerSecond float64 // 0.01..100000; 0: no limit
	Burst     int     // requests that an idle route may send at once; default PerSecond rounded up
	Scope     Scope   // default replica
}

// Scope says who shares a rate limit.
type Scope string

// Who may share a rate limit.
const (
	ScopeReplica Scope = "replica" // nobody: each forwarder has the whole limit
	ScopeGlobal  Scope = "global"  // all forwarders of the database
)

const (
	leastPerSecond, mostPerSecond = 0.01, 100_000
	// leastGlobal is the smallest rate that forwarders can share. They lease at least one permit at a time, and one that
	// dies takes its lease with it: at this rate that is a gap of ten seconds, below it the route would seem to be stuck.
	leastGlobal = 0.1
	// burstTime is how long the limit may take to refill a burst. A limit whose burst is worth more is none for that long,
	// which nobody means who sets one.
	burstTime = time.Hour
)

// Interval is the time between two requests at this rate.
func (l RateLimit) Interval() time.Duration {
	return time.Duration(float64(time.Second) / l.PerSecond)
}

func rateLimitFields() []field[Route] {
	return []field[Route]{
		{
			name: "per_second", doc: "How many requests go out a second, 0.5 for one in two seconds.",
			value: into(float(leastPerSecond, mostPerSecond), func(r *Route, v float64) { r.RateLimit.PerSecond = v }),
		},
		{
			name: "burst", doc: "How many requests may go out at once after a pause. Default: per_second, rounded up.",
			value: into(upTo(1_000_000), func(r *Route, v int) { r.RateLimit.Burst = v }),
		},
		{
			name: "scope", doc: "replica: each forwarder may send that much. global: all forwarders together.",
			value: into(choice([]Scope{ScopeReplica, ScopeGlobal}, nil).withDefault("replica"), func(r *Route, v Scope) { r.RateLimit.Scope = v }),
		},
	}
}

// rateLimit fills in the defaults of a rate limit and reports what contradicts itself.
func (p *parser) rateLimit(r *Route) {
	block, set := r.set["rate_limit"]
	if !set {
		return
	}
	l := &r.RateLimit
	if l.PerSecond == 0 {
		if !strings.HasPrefix(block.at, "defaults.") && block.node.kind == kindMap && !block.node.has("per_second") {
			p.fault(block.node, block.at+".per_second", "is missing; add it, or remove rate_limit")
		}
		*l = RateLimit{} // defaults that say how a limit would be, on a route that has none
		return
	}
	if l.Scope == "" {
		l.Scope = ScopeReplica
	}
	if l.Burst == 0 {
		l.Burst = max(1, int(math.Ceil(l.PerSecond)))
	}
	if l.Scope == ScopeGlobal && l.PerSecond < leastGlobal {
		at := r.set["rate_limit.per_second"]
		p.fault(at.node, at.at, fmt.Sprintf("%s is too small for scope global: forwarders lease at least one request each, and one that dies takes its lease with "+
			"it, which would stop the route for %s; write %s or more, or scope: replica", rate(l.PerSecond), plain(l.Interval().Round(time.Second)), rate(leastGlobal)))
	}
	if most := max(1, l.PerSecond*burstTime.Seconds()); float64(l.Burst) > most {
		at := r.set["rate_limit.burst"]
		p.fault(at.node, at.at, fmt.Sprintf("%d is more than %s a second give in an hour (%s), so that there would be no limit for that long; lower burst, or raise per_second",
			l.Burst, rate(l.PerSecond), rate(math.Floor(most))))
	}
}

func (l RateLimit) String() string {
	if l.PerSecond == 0 {
		return "none"
	}
	whose := "for each forwarder"
	if l.Scope == ScopeGlobal {
		whose = "over all forwarders"
	}
	return fmt.Sprintf("%s a second, bursts of %d, %s", rate(l.PerSecond), l.Burst, whose)
}

func rate(perSecond float64) string { return strconv.FormatFloat(perSecond, 'f', -1, 64) }
