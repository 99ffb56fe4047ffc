package ingest

import (
	"context"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

// item is a record that waits for its writer.
type item struct {
	p      *partition
	epoch  int
	record *message.Record
}

func (i item) size() int { return i.record.Size() }

// valid says whether the item's partition is still ours and was not restarted since. Called under mu.
func (i item) valid() bool { return !i.p.gone && i.p.phase == running && i.epoch == i.p.epoch }

// writer stores the records of its partitions, one transaction at a time and in their order.
type writer struct {
	g    *Ingester
	wake chan struct{}

	// Under Ingester.mu.
	queue   []item
	bytes   int  // of the queue and of the batch in work
	full    bool // its partitions are to be paused
	stalled bool // the database is away: the same
}

func newWriter(g *Ingester) *writer { return &writer{g: g, wake: make(chan struct{}, 1)} }

// bound is how many bytes a writer may hold.
func (w *writer) bound() int { return max(1, w.g.cfg.BufferBytes/w.g.cfg.Writers) }

// push adds a record. Called under mu.
func (w *writer) push(it item) {
	w.queue = append(w.queue, it)
	w.bytes += it.size()
	if w.bytes >= w.bound() {
		w.full = true
	}
	kick(w.wake)
}

// release notes that so many bytes are held no more; at half of the bound its partitions go on. Called under mu.
func (w *writer) release(bytes int) {
	w.bytes -= bytes
	if w.bytes <= w.bound()/2 {
		w.full = false
	}
}

// forget drops what is buffered of a partition. Called under mu.
func (w *writer) forget(p *partition) {
	kept := w.queue[:0]
	dropped := 0
	for _, it := range w.queue {
		if it.p == p {
			dropped += it.size()
			continue
		}
		kept = append(kept, it)
	}
	clear(w.queue[len(kept):])
	w.queue = kept
	w.release(dropped)
}

// run stores batch after batch until polling has ended and nothing is left, or the context ends.
func (w *writer) run(ctx context.Context) {
	for {
		items := w.next(ctx)
		if len(items) == 0 {
			return
		}
		w.store(ctx, items)
	}
}

// next waits for records and takes a batch: what waits at this moment, up to the bounds. There is no waiting for more:
// while one batch is stored the next one forms. It returns nothing when there will be no more.
func (w *writer) next(ctx context.Context) []item {
	for {
		if ctx.Err() != nil {
			return nil
		}
		if items := w.take(); len(items) > 0 {
			return items
		}
		select {
		case <-w.wake:
		case <-w.g.drain:
			if items := w.take(); len(items) > 0 {
				return items
			}
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// take removes a batch from the queue and marks its partitions as being saved.
func (w *writer) take() []item {
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	n, bytes := 0, 0
	for n < len(w.queue) && n < w.g.cfg.BatchSize {
		size := w.queue[n].size()
		if n > 0 && bytes+size > w.g.cfg.BatchBytes {
			break
		}
		bytes += size
		n++
	}
	if n == 0 {
		return nil
	}
	items := append([]item(nil), w.queue[:n]...)
	rest := copy(w.queue, w.queue[n:])
	clear(w.queue[rest:])
	w.queue = w.queue[:rest]
	return items
}

// stall says on and off that the database takes nothing.
func (w *writer) stall(on bool) {
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	w.stalled = on
}

// pause waits before another try, at most until a revocation or the end of the process asks to look again.
func (w *writer) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.wake:
	case <-ctx.Done():
	}
}
