// Package groupcommit runs many callers' items together: whatever waits while one run is under way goes out as the next
// run. Batches form by themselves, small when there is little to do and large under load; there is no timer, so an item
// that comes alone is not delayed.
package groupcommit

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
)

// Config says how items are run.
type Config[I, O any] struct {
	// Run handles the items together and returns one result for each, in order. An error goes to every caller.
	Run func(ctx context.Context, items []I) ([]O, error)
	// Weigh is what an item counts against Max; nil counts 1.
	Weigh func(I) int
	// Max bounds the weight of one run (at least one item goes). Default 1000.
	Max int
	// Parallel is how many runs may be under way at once. Default 1.
	Parallel int
}

// Group collects items and runs them. The zero value is not usable; see New.
type Group[I, O any] struct {
	cfg Config[I, O]

	mu      sync.Mutex
	waiting []*call[I, O]
	running int
}

type call[I, O any] struct {
	ctx  context.Context //nolint:containedctx // the caller's, to leave out who has gone before the run
	item I
	out  O
	err  error
	done chan struct{}
}

// New returns a Group for cfg.
func New[I, O any](cfg Config[I, O]) *Group[I, O] {
	if cfg.Max <= 0 {
		cfg.Max = 1000
	}
	if cfg.Parallel <= 0 {
		cfg.Parallel = 1
	}
	if cfg.Weigh == nil {
		cfg.Weigh = func(I) int { return 1 }
	}
	return &Group[I, O]{cfg: cfg}
}

// Do hands the item to the next run and waits for its result. A caller whose context ends while its item still waits
// takes the item back; one whose item is being run gets the context's error, and the run goes on without it.
func (g *Group[I, O]) Do(ctx context.Context, item I) (O, error) {
	c := &call[I, O]{ctx: ctx, item: item, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, c)
	if g.running < g.cfg.Parallel {
		g.running++
		go g.work()
	}
	g.mu.Unlock()
	select {
	case <-c.done:
		return c.out, c.err
	case <-ctx.Done():
		var zero O
		return zero, context.Cause(ctx)
	}
}

// Waiting returns how many items wait for the next run.
func (g *Group[I, O]) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}

// work runs batches until nothing waits.
func (g *Group[I, O]) work() {
	for {
		batch := g.take()
		if batch == nil {
			return
		}
		g.run(batch)
	}
}

// take removes the next batch, or gives up the runner's place when nothing waits. Both happen under one lock: else an
// item that is added between "nothing waits" and "no longer running" would wait for a runner that has gone.
func (g *Group[I, O]) take() []*call[I, O] {
	g.mu.Lock()
	defer g.mu.Unlock()
	var batch []*call[I, O]
	weight, n := 0, 0
	for _, c := range g.waiting {
		if c.ctx.Err() != nil {
			n++
			continue
		}
		w := g.cfg.Weigh(c.item)
		if len(batch) > 0 && weight+w > g.cfg.Max {
			break
		}
		n++
		weight += w
		batch = append(batch, c)
	}
	rest := copy(g.waiting, g.waiting[n:])
	clear(g.waiting[rest:])
	g.waiting = g.waiting[:rest]
	if len(batch) == 0 {
		g.running--
		return nil
	}
	return batch
}

func (g *Group[I, O]) run(batch []*call[I, O]) {
	items := make([]I, len(batch))
	for i, c := range batch {
		items[i] = c.item
	}
	// The run belongs to all its callers: one of them leaving must not end it for the others.
	outs, err := g.safely(context.WithoutCancel(batch[0].ctx), items)
	if err == nil && len(outs) != len(items) {
		err = fmt.Errorf("running %d items together: %d results came back", len(items), len(outs))
	}
	for i, c := range batch {
		if err != nil {
			c.err = err
		} else {
			c.out = outs[i]
		}
		close(c.done)
	}
}

func (g *Group[I, O]) safely(ctx context.Context, items []I) (outs []O, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("running %d items together: panic: %v\n%s", len(items), p, debug.Stack())
		}
	}()
	return g.cfg.Run(ctx, items)
}
