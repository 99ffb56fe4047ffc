package route

import (
	"fmt"
	"time"
)

// Breaker says when a route's destination is taken to be down, and how it is asked then.
type Breaker struct {
	Enabled     bool          // default true
	Cooldown    time.Duration // default 5s: between two probes, doubling
	CooldownMax time.Duration // default 60s, or Cooldown if that is longer: at most
	HoldMax     time.Duration // default 10s, or Patience if that is shorter: how long a job that was fetched waits for it
}

func breakerFields() []field[Route] {
	return []field[Route]{
		{
			name: "enabled", doc: "false: failing requests burn attempts whatever state the destination is in, and nothing is held back.",
			value: into(boolean().withDefault(true), func(r *Route, v bool) { r.Breaker.Enabled = v }),
		},
		{
			name: "cooldown", doc: "The time between two probes of a destination that is down; it doubles with each probe that fails.",
			value: into(duration(10*time.Millisecond, day).withDefault("5s"), func(r *Route, v time.Duration) { r.Breaker.Cooldown = v }),
		},
		{
			name: "cooldown_max", doc: "The longest time between two probes. Default 60s, or cooldown if that is longer.",
			value: into(duration(10*time.Millisecond, day), func(r *Route, v time.Duration) { r.Breaker.CooldownMax = v }),
		},
		{
			name: "hold_max", doc: "How long a job that was fetched already waits for a destination that is down before it is given back to the queue. " +
				"Default 10s, or the time that a job has before it must send if that is shorter.",
			value: into(duration(10*time.Millisecond, day), func(r *Route, v time.Duration) { r.Breaker.HoldMax = v }),
		},
	}
}

const (
	cooldownMax = 60 * time.Second
	holdMax     = 10 * time.Second
)

// breaker fills in the defaults that depend on the cooldown.
func (p *parser) breaker(r *Route) {
	if _, set := r.set["breaker.cooldown_max"]; !set {
		r.Breaker.CooldownMax = max(cooldownMax, r.Breaker.Cooldown)
	}
	p.notBelow(r, limit{"breaker.cooldown_max", r.Breaker.CooldownMax}, limit{"breaker.cooldown", r.Breaker.Cooldown})
}

// SendMargin is what is left of a job's time, at the least, when its last request may have timed out.
const SendMargin = time.Second

// Patience is how long a job of the route may wait until it must send or be given back: then its request still ends
// within the job's time.
func (f *File) Patience(r *Route) time.Duration { return f.JobTime() - r.HTTP.Timeout - SendMargin }

// holds bounds how long jobs wait for a breaker; that depends on the timeouts of all routes.
func (p *parser) holds(f *File) {
	for _, r := range f.Routes {
		patience := f.Patience(r)
		o, set := r.set["breaker.hold_max"]
		switch {
		case !set:
			r.Breaker.HoldMax = min(holdMax, patience)
		case r.Breaker.HoldMax > patience:
			p.fault(o.node, o.at, fmt.Sprintf("is %s; a job must send after %s at the latest, so that its request (http.timeout %s) ends within the %s that a job has "+
				"(twice the longest http.timeout of all routes, and 5s); make it shorter, or http.timeout longer",
				plain(r.Breaker.HoldMax), plain(patience), plain(r.HTTP.Timeout), plain(f.JobTime())))
		}
	}
}

// String describes it for people.
func (b Breaker) String() string {
	if !b.Enabled {
		return "off"
	}
	return fmt.Sprintf("one probe each %s up to %s, jobs wait for at most %s", plain(b.Cooldown), plain(b.CooldownMax), plain(b.HoldMax))
}
