package pacing

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

const (
	// chunkTime is how long a usual lease lasts: what a process that dies takes with it.
	chunkTime = 200 * time.Millisecond
	// askEvery is the shortest time between two statements.
	askEvery = 100 * time.Millisecond
	// prefetch is how long before its last permit is due a process asks for more, so that there is no gap.
	prefetch = 100 * time.Millisecond
	// ahead is how far from now a lease may begin. With leases of chunkTime, one process alone is always in time with its
	// next one; several take turns.
	ahead = 250 * time.Millisecond
	// keep is how long a permit can be used after its time. Longer, and a process that was held up would send all at once
	// what had been spread over that time: with a fifth of a second, no second sees more than 1.2 times the rate.
	keep = 200 * time.Millisecond
	// slowest is the longest time of a statement that leases reach over.
	slowest = 2 * time.Second
	// pollFetch and pollSlow are when to ask again while a lease is on its way, at first and later.
	pollFetch = 5 * time.Millisecond
	pollSlow  = 25 * time.Millisecond
	// firstRest and longestRest bound the wait after a statement that failed.
	firstRest   = 250 * time.Millisecond
	longestRest = 2 * time.Second
)

// leaseTime bounds a statement.
const leaseTime = 5 * time.Second

var errLeaseTime = errors.New("the database did not answer within 5 s")

// Leaser is the line of times at which the requests of a route are due, over all processes.
type Leaser interface {
	Lease(ctx context.Context, ask message.LeaseAsk) (message.Lease, error)
	GiveBack(ctx context.Context, route string, u message.Unused) error
}

// GlobalConfig is what a Global needs. All fields but Now are required.
type GlobalConfig struct {
	Route  string
	Limit  route.RateLimit
	Leaser Leaser
	Logger *slog.Logger
	Now    func() time.Time // the clock of this process, which must be monotonic; default time.Now
}

// Global is this process's part in a limit that all processes share. It is safe for concurrent use.
//
// # Time
//
// Each permit has a time by the database's clock, and none may be used before it, or two processes would send together what
// they leased one behind the other. clock says when that is by the clock of this process. A permit is good for a moment
// (keep) after its time:
//
//	A leases 0–200 ms; its answer hangs for 1 s         B leases 200–400 ms, …, 1000–1200 ms, and sends in time
//	A receives ten permits                              if A used them now, the destination would get both at once
//
// The same holds for a process that was frozen. Where the database is slow all the time, the process asks that much earlier
// and for that much more, so that what comes is due when it comes.
//
// # Who asks
//
// Only a process with messages that wait for a permit asks, for as many as wait and a chunk at the most; so one with
// nothing to send holds nothing that others could use. One whose permits expire, since it has no slots to use them, asks
// for fewer.
type Global struct {
	cfg   GlobalConfig
	chunk int

	mu        sync.Mutex
	leases    []lease // at hand, in the order of their times
	size      int     // how many permits a usual lease has; chunk, unless permits expired
	shrunk    bool    // since the last statement
	unused    message.Unused
	asked     time.Time     // when the statement under way was sent; zero: none is
	notBefore time.Time     // no statement before this
	lag       time.Duration // of answers, lately
	clock     clock
	failures  int
	since     time.Time // of the first failure
	closed    bool
	cancel    context.CancelFunc // of the statement under way
	asking    sync.WaitGroup
}

// lease is what is left of one: the permits from next on.
type lease struct {
	message.Lease

	now       time.Time // the database's now, by the clock of this process
	perSecond float64
	next      int
}

// due is when permit i is to be used.
func (l *lease) due(i int) time.Time { return l.now.Add(max(0, l.Start.Sub(l.Now)+l.offset(i))) }

func (l *lease) offset(i int) time.Duration {
	return time.Duration(float64(i) / l.perSecond * float64(time.Second))
}

// left is what a lease still has, by the database's clock.
func (l *lease) left() message.Unused {
	return message.Unused{From: l.Start.Add(l.offset(l.next)), End: l.End}
}

// NewGlobal returns the limit. Close it.
func NewGlobal(cfg GlobalConfig) *Global {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	g := &Global{cfg: cfg, chunk: max(1, int(math.Ceil(cfg.Limit.PerSecond*chunkTime.Seconds())))}
	g.size = g.chunk
	return g
}

// Take takes the permit for one request if there is one. Else it says after how long to ask again. waiting is how many
// messages wait for a permit, this one included. It never waits for the database.
func (g *Global) Take(now time.Time, waiting int) (ok bool, again time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(now)
	if len(g.leases) > 0 && !g.leases[0].due(g.leases[0].next).After(now) {
		ok = true
		waiting--
		l := &g.leases[0]
		if l.next++; l.next == l.N {
			g.leases = g.leases[1:]
			g.size = min(g.chunk, g.size+max(1, g.chunk/10))
		}
	}
	g.ask(now, waiting)
	if ok {
		return true, 0
	}
	return false, max(shortestWait, g.again(now))
}

func (g *Global) again(now time.Time) time.Duration {
	switch {
	case len(g.leases) > 0:
		return g.leases[0].due(g.leases[0].next).Sub(now)
	case g.closed:
		return time.Second
	case g.asked.IsZero():
		return g.notBefore.Sub(now)
	case now.Sub(g.asked) < 10*pollFetch:
		return pollFetch
	}
	return pollSlow
}

// expire drops permits that are too old.
func (g *Global) expire(now time.Time) {
	for len(g.leases) > 0 {
		l := &g.leases[0]
		left := l.left()
		dropped := l.next
		for l.next < l.N && l.due(l.next).Add(keep).Before(now) {
			l.next++
		}
		if l.next > dropped && !g.shrunk {
			g.shrunk, g.size = true, max(1, g.size/2)
		}
		if l.next < l.N {
			return
		}
		g.leases = g.leases[1:]
		g.unused = left
	}
}

// ask sends a statement, if it is time for one.
func (g *Global) ask(now time.Time, waiting int) {
	if g.closed || !g.asked.IsZero() || now.Before(g.notBefore) {
		return
	}
	for i := range g.leases {
		waiting -= g.leases[i].N - g.leases[i].next
	}
	if waiting <= 0 {
		return
	}
	if n := len(g.leases); n > 0 {
		if l := g.leases[n-1]; l.due(l.N-1).Sub(now) > prefetch+g.lag {
			return
		}
	}
	limit := g.cfg.Limit
	n := min(waiting, g.size+int(limit.PerSecond*2*g.lag.Seconds())) // until this answer and the next one are here
	most := n
	if g.size == g.chunk { // what it took, it could use
		most = min(waiting, max(n, limit.Burst))
	}
	ask := message.LeaseAsk{
		Route: g.cfg.Route, PerSecond: limit.PerSecond, Burst: limit.Burst, N: n, Most: most, Ahead: ahead + g.lag, Unused: g.unused,
	}
	// Forgotten before it is known whether they are given back: doing it twice could undo what was leased in between.
	g.unused, g.shrunk = message.Unused{}, false
	g.asked = now
	var ctx context.Context
	ctx, g.cancel = context.WithTimeoutCause(context.Background(), leaseTime, errLeaseTime)
	g.asking.Go(func() { g.fetch(ctx, ask) })
}

func (g *Global) fetch(ctx context.Context, ask message.LeaseAsk) {
	sent := g.cfg.Now()
	got, err := g.cfg.Leaser.Lease(ctx, ask)
	received := g.cfg.Now()
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errLeaseTime) {
		err = cause
	}
	g.mu.Lock()
	failures, since := g.failures, g.since
	g.cancel()
	g.asked = time.Time{}
	if err != nil {
		if g.failures++; g.failures == 1 {
			g.since = sent
		}
		g.notBefore = received.Add(rest(g.failures))
	} else {
		g.failures = 0
		g.take(got, sent, received)
	}
	closed := g.closed
	g.mu.Unlock()
	switch {
	case closed:
	case err != nil && failures == 0:
		g.cfg.Logger.Warn("requests of a global rate limit can't be leased; the route sends nothing until they can", "route", g.cfg.Route, "error", err)
	case err == nil && failures > 0:
		g.cfg.Logger.Info("requests of a global rate limit are leased again", "route", g.cfg.Route, "failures", failures, "after", received.Sub(since))
	}
}

// take keeps what a statement brought.
func (g *Global) take(got message.Lease, sent, received time.Time) {
	g.clock.observe(got.Now, sent, received)
	g.lag = min(slowest, (g.lag+received.Sub(sent))/2)
	g.notBefore = sent.Add(askEvery)
	if got.N > 0 {
		g.leases = append(g.leases, lease{Lease: got, now: g.clock.local(got.Now), perSecond: g.cfg.Limit.PerSecond})
		return
	}
	if next := received.Add(got.Wait); next.After(g.notBefore) {
		g.notBefore = next
	}
}

// rest is the wait after so many failures.
func rest(failures int) time.Duration {
	wait := min(longestRest, firstRest<<min(failures-1, 10))
	return time.Duration(float64(wait) * (0.8 + 0.4*rand.Float64())) //nolint:gosec // no secret
}

// Close gives back what is at hand and asks for nothing more. A statement under way is waited for until ctx ends.
func (g *Global) Close(ctx context.Context) error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	done := make(chan struct{})
	go func() { g.asking.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		g.mu.Lock()
		if g.cancel != nil {
			g.cancel()
		}
		g.mu.Unlock()
		<-done
		return context.Cause(ctx)
	}
	g.mu.Lock()
	var left message.Unused
	if n := len(g.leases); n > 0 {
		left = g.leases[n-1].left()
	}
	g.leases = nil
	g.mu.Unlock()
	if left.End.IsZero() {
		return nil
	}
	return g.cfg.Leaser.GiveBack(ctx, g.cfg.Route, left) //nolint:wrapcheck // says what was being done
}
