package pacing

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/ferry-forward/ferry/internal/route"
)

// shortestWait is the shortest time after which a limit wants to be asked again: timers are not finer, and a rate above
// it is reached all the same, since all permits that are due by then are there at once.
const shortestWait = time.Millisecond

// Replica is the limit of one process. It is safe for concurrent use.
type Replica struct {
	mu     sync.Mutex
	bucket *rate.Limiter
}

// late is how late whoever asks may come without losing what was due: timers are not exact, and a bucket that is full takes
// no more.
const late = 20 * time.Millisecond

// NewReplica returns the limit, which begins with a whole burst.
func NewReplica(l route.RateLimit) *Replica {
	burst := max(l.Burst, 1+int(l.PerSecond*late.Seconds()))
	return &Replica{bucket: rate.NewLimiter(rate.Limit(l.PerSecond), burst)}
}

// Take takes the permit for one request if there is one. Else it says after how long to ask again.
func (r *Replica) Take(now time.Time, _ int) (ok bool, again time.Duration) {
	r.mu.Lock() // between the two calls nobody else may take the permit that the wait is for
	defer r.mu.Unlock()
	if r.bucket.AllowN(now, 1) {
		return true, 0
	}
	next := r.bucket.ReserveN(now, 1)
	defer next.CancelAt(now)
	return false, max(shortestWait, next.DelayFrom(now))
}
