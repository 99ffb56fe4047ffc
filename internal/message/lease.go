package message

import "time"

// LeaseAsk asks for permits of a route's rate limit that all forwarders share. A permit is the right to send one request.
type LeaseAsk struct {
	Route     string
	PerSecond float64
	Burst     int
	// N is how many permits are wanted, Most how many if they lie ready because the route was idle.
	N, Most int
	// Ahead is how far from now the first of them may be due. If it would be later, none is granted.
	Ahead time.Duration
	// Unused are permits of an earlier lease that were not used. They are put back in front, unless somebody has leased
	// what comes behind them.
	Unused Unused
}

// Unused is the end of a lease, by the database's clock: the permits due from From on. The zero value is none.
type Unused struct{ From, End time.Time }

// Lease is what was granted: N permits, one after another, Start + i/rate for i from 0. All times are by the database's
// clock, so that it does not matter whether those of the hosts agree.
type Lease struct {
	N     int
	Now   time.Time     // when the lease was made
	Start time.Time     // when the first permit is due; before Now: it was then
	End   time.Time     // when the one behind the last is due, which is not part of the lease
	Wait  time.Duration // without permits: from Now to when asking makes sense again
}
