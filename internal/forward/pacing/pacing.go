// Package pacing says when a message may be sent: how long it waits until its next attempt, and how many requests a second go
// out. It is pure: clock, chance and the line of leases come in from outside.
package pacing

import (
	"math"
	"time"

	"github.com/ferry-forward/ferry/internal/route"
)

// Backoff is the wait after the attempt with this number (from 1) failed: initial × multiplier^(attempt-1), at most
// max, then jitter either way. rnd returns numbers in [0, 1).
func Backoff(r route.Retry, attempt int, rnd func() float64) time.Duration {
	wait := float64(r.Initial) * math.Pow(r.Multiplier, float64(max(attempt, 1)-1))
	if math.IsNaN(wait) || wait > float64(r.Max) {
		wait = float64(r.Max)
	}
	return duration(wait * (1 + r.Jitter*(2*rnd()-1)))
}

// AfterRetry is the wait after an attempt that counted: Backoff, and never less than the destination asked for.
func AfterRetry(r route.Retry, attempt int, retryAfter time.Duration, rnd func() float64) time.Duration {
	wait := Backoff(r, attempt, rnd)
	if retryAfter > 0 {
		wait = max(wait, asked(r, retryAfter, rnd))
	}
	return wait
}

// AfterHold is the wait of a held message: what the destination asked for, to which jitter only adds; or, when it asked
// for nothing (retryAfter 0), half the age of the trouble (the time since the message's first fault) between initial
// and max, with jitter either way. So a message is tried soon after a short outage, and rarely in a long one.
func AfterHold(r route.Retry, age, retryAfter time.Duration, rnd func() float64) time.Duration {
	if retryAfter > 0 {
		return asked(r, retryAfter, rnd)
	}
	wait := min(max(age/2, r.Initial), r.Max)
	return duration(float64(wait) * (1 + r.Jitter*(2*rnd()-1)))
}

func asked(r route.Retry, retryAfter time.Duration, rnd func() float64) time.Duration {
	return max(retryAfter, duration(float64(retryAfter)*(1+r.Jitter*rnd())))
}

// duration converts without overflow, and never to less than 0.
func duration(f float64) time.Duration {
	switch {
	case math.IsNaN(f) || f < 0:
		return 0
	case f >= math.MaxInt64:
		return math.MaxInt64
	}
	return time.Duration(f)
}
