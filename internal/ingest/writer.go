package ingest

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

// writer stores the records of its partitions, one transaction at a time.
type writer struct {
	g       *Ingester
	name    string
	wake    chan struct{} // there is a record
	revoked chan struct{} // a partition is gone

	// Under Ingester.mu:
	queue   []item
	bytes   int  // of the queue and the open batch
	full    bool // its partitions are to be paused until half is stored
	stalled bool // it waits for the database
}

// item is a record that waits to be stored, or a step over offsets that hold none.
type item struct {
	p      *partition
	epoch  int
	after  int64           // where the partition was read up to before it
	to     int64           // and after it
	record *message.Record // nil: none
}

func (it item) size() int {
	if it.record == nil {
		return 0
	}
	return it.record.Size()
}

// current says whether the record is still to be stored. Called under mu.
func (it item) current() bool { return !it.p.gone && it.p.epoch == it.epoch }

// entry is a record of an open batch, with what the routes make of it.
type entry struct {
	item
	incoming []message.Incoming
}

func newWriter(g *Ingester) *writer {
	return &writer{
		g: g, name: "writer " + strconv.Itoa(len(g.writers)+1), wake: make(chan struct{}, 1), revoked: make(chan struct{}, 1),
	}
}

// share is what a writer may hold of the buffer. A bound for each, and not one for all, keeps a writer that is stuck
// from taking the room of the others.
func (w *writer) share() int { return max(1, w.g.cfg.BufferBytes/w.g.cfg.Writers) }

// pauses says whether, and why, its partitions are to be paused. Called under mu.
func (w *writer) pauses() pauseReason {
	switch {
	case w.stalled:
		return stalled
	case w.full:
		return bufferFull
	}
	return flowing
}

// push adds a record. Called under mu.
func (w *writer) push(it item) {
	w.queue = append(w.queue, it)
	w.bytes += it.size()
	if w.bytes > w.share() && !w.full {
		w.full = true
		w.g.attention.Store(true)
	}
	kick(w.wake)
}

// release gives room back. Called under mu.
func (w *writer) release(bytes int) {
	w.bytes -= bytes
	if w.bytes <= w.share()/2 && w.full {
		w.full = false
		w.g.attention.Store(true)
	}
}

// forget drops what is queued of a partition. Called under mu.
func (w *writer) forget(p *partition) {
	bytes := 0
	w.queue = slices.DeleteFunc(w.queue, func(it item) bool {
		if it.p != p {
			return false
		}
		bytes += it.size()
		return true
	})
	w.release(bytes)
}

// pop takes the next record that fits into room bytes.
func (w *writer) pop(room int) (item, bool) {
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	if len(w.queue) == 0 || w.queue[0].size() > room {
		return item{}, false
	}
	it := w.queue[0]
	w.queue[0] = item{} // the queue must not keep the record
	w.queue = w.queue[1:]
	return it, true
}

func (w *writer) waiting() int {
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	return len(w.queue)
}

// run stores until the context ends, or until polling has ended and nothing waits.
func (w *writer) run(ctx context.Context) {
	for ctx.Err() == nil {
		entries, bytes := w.collect(ctx)
		if len(entries) > 0 {
			ok := w.save(ctx, entries)
			w.g.mu.Lock()
			w.release(bytes)
			w.g.mu.Unlock()
			if !ok {
				return
			}
			continue
		}
		select {
		case <-w.wake:
		case <-w.g.drain:
			if w.waiting() == 0 {
				return
			}
		case <-ctx.Done():
		}
	}
}

// evaluationLimit ends a batch whose records take long to evaluate.
const evaluationLimit = time.Second

// collect makes a batch of what waits, evaluating record by record. The writer is free, so the batch closes as soon as
// nothing waits: it is small when there is little to do, and under load as large as what came during the last
// transaction. It closes at the latest at its size or bytes; and of what comes while it is evaluated it takes only what
// comes within the linger.
func (w *writer) collect(ctx context.Context) (entries []entry, bytes int) {
	opened, there := time.Now(), w.waiting()
	for len(entries) < w.g.cfg.BatchSize && ctx.Err() == nil {
		room := w.g.cfg.BatchBytes - bytes
		if len(entries) == 0 {
			room = int(^uint(0) >> 1) // a record that is larger than a batch goes alone
		}
		it, ok := w.pop(room)
		if !ok {
			break
		}
		bytes += it.size()
		e := entry{item: it}
		if it.record != nil {
			// Not cancelled at the stop: a key that is cut short would be another key.
			e.incoming = w.g.eval.incoming(context.WithoutCancel(ctx), it.record)
		}
		entries = append(entries, e)
		if age := time.Since(opened); age >= evaluationLimit || (len(entries) >= there && age >= w.g.cfg.BatchLinger) {
			break
		}
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.p.Topic, b.p.Topic), cmp.Compare(a.p.Partition, b.p.Partition))
	})
	return entries, bytes
}
