package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ferry-forward/ferry/internal/forward/breaker"
	"github.com/ferry-forward/ferry/internal/store"
)

// Limit is a route's rate limit.
type Limit interface {
	// Take takes the permit for one request, if there is one now. Else it says after how long to ask again (> 0). waiting
	// is how many messages wait for a permit now, this one included.
	Take(now time.Time, waiting int) (ok bool, again time.Duration)
}

// choice is among how many of the longest waiting messages a probe is chosen.
const choice = 100

var errHeld = errors.New("the destination is down, and the message waited as long as a job may")

// gate is the queue of a route's messages that wait for their turn. One goes when the breaker lets it, a slot is free and
// the limit has a permit for it, all in one step: a message that waits holds neither. First come, first served, so that
// neither new messages nor retries starve; only a probe is chosen.
type gate struct {
	breaker *breaker.Breaker
	limit   Limit         // nil: none
	holdMax time.Duration // how long a message waits for an open breaker
	changed func(inFlight int)

	mu       sync.Mutex
	queue    []*waiter
	messages int // that wait: those in the queue, and those behind them in their jobs
	inFlight int
	timer    *time.Timer // asks again; nil: nothing to ask for
	closed   bool
}

// waiter is a message in the queue.
type waiter struct {
	breaker.Waiting

	behind int           // messages of the same job that come after it
	turn   chan struct{} // closed when it may go; then it is out of the queue
}

// enter waits for the turn of a message, which has others of its job behind it. Without an error, leave must follow.
func (g *gate) enter(ctx context.Context, item *store.Item, behind int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := &waiter{breaker.Waiting{Message: item.ID, Attempts: item.Attempts}, behind, make(chan struct{})}
	g.mu.Lock()
	g.queue = append(g.queue, w)
	g.messages += 1 + behind
	g.pump(time.Now())
	g.mu.Unlock()

	held := time.NewTimer(g.holdMax)
	defer held.Stop()
	for {
		select {
		case <-w.turn:
			return g.went(ctx, w)
		case <-ctx.Done():
			if g.giveUp(w) {
				return context.Cause(ctx)
			}
		case <-held.C:
			if g.breaker.Status(time.Now()).Open() && g.giveUp(w) {
				return errHeld
			}
			held.Reset(g.holdMax)
		}
	}
}

// went is the last look before a message goes: its turn may have come together with its end. It looks at the clock too: in
// a process that was frozen, a turn may come before the timer of the context has its own.
func (g *gate) went(ctx context.Context, w *waiter) error {
	err := context.Cause(ctx)
	if deadline, ok := ctx.Deadline(); err == nil && ok && !time.Now().Before(deadline) {
		err = context.DeadlineExceeded
	}
	if err != nil {
		g.leave(w.Message)
	}
	return err
}

// giveUp takes a waiter out of the queue. False: its turn has come meanwhile.
func (g *gate) giveUp(w *waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.queue, w)
	if i < 0 {
		return false
	}
	g.remove(i)
	return true
}

// remove takes a waiter out of the queue, the first one without moving the others.
func (g *gate) remove(i int) {
	g.messages -= 1 + g.queue[i].behind
	if i > 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
		return
	}
	g.queue[0] = nil
	g.queue = g.queue[1:]
}

// leave gives the turn back, when the outcome is stored or there is none.
func (g *gate) leave(message int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	g.changed(g.inFlight)
	g.breaker.Left(message)
	g.pump(time.Now())
}

// pump lets go whoever may. The caller holds mu.
func (g *gate) pump(now time.Time) {
	for len(g.queue) > 0 {
		turn := g.breaker.Turn(now, g.inFlight)
		if !turn.Go {
			g.askAgain(now, turn.Again)
			return
		}
		if g.limit != nil {
			if ok, again := g.limit.Take(now, g.messages); !ok {
				g.askAgain(now, now.Add(again))
				return
			}
		}
		i := 0
		if turn.Probe {
			i = g.choose()
		}
		w := g.queue[i]
		g.remove(i)
		if turn.Probe {
			g.breaker.Probe(w.Message)
		}
		g.inFlight++
		g.changed(g.inFlight)
		close(w.turn)
	}
}

func (g *gate) choose() int {
	first := g.queue[:min(choice, len(g.queue))]
	waiting := make([]breaker.Waiting, len(first))
	for i, w := range first {
		waiting[i] = w.Waiting
	}
	return g.breaker.Choose(waiting)
}

// askAgain has pump called at that time; the zero time means that somebody leaves before anything can change.
func (g *gate) askAgain(now, at time.Time) {
	if at.IsZero() || g.closed {
		return
	}
	wait := max(at.Sub(now), time.Millisecond)
	if g.timer == nil {
		g.timer = time.AfterFunc(wait, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			if !g.closed {
				g.pump(time.Now())
			}
		})
		return
	}
	g.timer.Reset(wait)
}

// close ends the asking. Who still waits goes by its own context.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.timer != nil {
		g.timer.Stop()
	}
}
