package ingest

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

// Waits between two tries to store a batch.
const (
	firstRetry   = 100 * time.Millisecond
	longestRetry = 3 * time.Second
	detailBytes  = 1024 // of the error that is kept with an unstorable record
)

// transaction is one try to store entries.
type transaction struct {
	entries []entry
	batch   message.Batch
	parts   []*partition
	epochs  []int
}

// save stores entries, however long it takes. It says whether they are dealt with: stored, or not ours to store any
// more. They are not only when the process stops; then nothing that comes after them may be stored either.
func (w *writer) save(ctx context.Context, entries []entry) bool {
	retry := firstRetry
	for {
		t := w.open(entries)
		if t == nil {
			w.recovered()
			return true
		}
		began := time.Now()
		saved, err := w.g.cfg.Saver.Save(ctx, &t.batch)
		moved := w.stored(t, err)
		entries = t.entries
		switch {
		case err == nil:
			w.recovered()
			w.report(t, saved, time.Since(began))
			return true
		case moved:
			continue // without the partitions that moved, which are read again
		case isRowFault(err) && w.canIsolate(entries, err):
			return w.isolate(ctx, entries)
		}
		if !w.wait(ctx, err, retry) {
			return false
		}
		retry = min(2*retry, longestRetry)
	}
}

// open begins a try: it leaves out what is not ours any more, and marks the partitions, so that a revocation waits for
// the end of it. nil when nothing is left.
func (w *writer) open(entries []entry) *transaction {
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	last := map[*partition]int64{}
	entries = slices.DeleteFunc(slices.Clone(entries), func(e entry) bool {
		if !e.current() || !w.follows(e, last) {
			return true
		}
		last[e.p] = e.to
		return false
	})
	if len(entries) == 0 {
		return nil
	}
	t := &transaction{entries: entries, batch: message.Batch{Group: w.g.cfg.Group}}
	for i, e := range entries {
		t.batch.Incoming = append(t.batch.Incoming, e.incoming...)
		if i+1 < len(entries) && entries[i+1].p == e.p {
			continue
		}
		e.p.saving = make(chan struct{})
		t.parts, t.epochs = append(t.parts, e.p), append(t.epochs, e.epoch)
		t.batch.Advances = append(t.batch.Advances, message.Advance{
			TopicPartition: e.p.TopicPartition, TopicID: e.p.topicID, From: e.p.row, To: e.to,
		})
	}
	return t
}

// follows says whether all records before this one are stored or in the same transaction. It must be so; if it is not,
// the partition is read again from its position, and nothing is lost. Called under mu.
func (w *writer) follows(e entry, last map[*partition]int64) bool {
	done, ok := last[e.p]
	if !ok {
		done = e.p.row
	}
	if e.after == done {
		return true
	}
	w.g.log.Error("records before this one are missing; the partition is read again", "topic", e.p.Topic,
		"partition", e.p.Partition, "after", e.after, "stored", done)
	w.g.restart(e.p)
	return false
}

// stored ends a try. Only here offsets become committable: the transaction that stored all before them has committed.
// It says whether partitions had moved.
func (w *writer) stored(t *transaction, err error) (moved bool) {
	var e *message.PositionsMovedError
	moved = errors.As(err, &e)
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	named := false
	for i, p := range t.parts {
		close(p.saving)
		p.saving = nil
		if err == nil {
			p.row = t.batch.Advances[i].To
		}
		if moved && slices.Contains(e.Partitions, p.TopicPartition) {
			named = true
			w.moved(p, t.epochs[i])
		}
		if p.phase == starting {
			kick(w.g.resolve) // it waited for this transaction
		}
	}
	for i, p := range t.parts {
		if moved && !named { // one must have
			w.moved(p, t.epochs[i])
		}
	}
	if err == nil {
		kick(w.g.commits)
	}
	return moved
}

// moved has a partition read from where its row stands now. Called under mu.
func (w *writer) moved(p *partition, epoch int) {
	if !p.gone && p.epoch == epoch {
		p.moved = true
		w.g.restart(p)
		kick(w.g.recheck) // the whole database may stand elsewhere
	}
}

// wait waits for the next try, and says whether there is one. Its partitions are paused meanwhile.
func (w *writer) wait(ctx context.Context, err error, retry time.Duration) bool {
	select {
	case <-w.g.drain: // a process that stops does not wait for a database that is away
		w.g.log.Warn("the last batch is not stored and is read again by its next owner", "error", err)
		return false
	default:
	}
	if ctx.Err() != nil {
		return false
	}
	w.g.mu.Lock()
	w.stalled = true
	w.g.attention.Store(true)
	w.g.mu.Unlock()
	w.g.health.fault(PartDatabase, w.name, err.Error())
	w.g.log.Warn("storing records is tried again until it succeeds; their partitions are paused", "error", err)
	timer := time.NewTimer(retry/2 + rand.N(retry/2+1)) //nolint:gosec // not a secret
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.revoked: // what is left may be nothing
	case <-w.g.drain:
	case <-ctx.Done():
		return false
	}
	return true
}

// recovered notes that the writer does not wait for the database.
func (w *writer) recovered() {
	w.g.mu.Lock()
	was := w.stalled
	w.stalled = false
	if was {
		w.g.attention.Store(true)
	}
	w.g.mu.Unlock()
	w.g.health.clear(PartDatabase, w.name)
	if was {
		w.g.log.Info("storing goes on")
	}
}

func isRowFault(err error) bool {
	var fault interface{ RowFault() bool }
	return errors.As(err, &fault) && fault.RowFault()
}

// canIsolate prepares entries of which the database refuses some. A single one is marked as unstorable, once: if the
// database refuses it even as a failed message, it waits like any other, and readiness says why.
func (w *writer) canIsolate(entries []entry, err error) bool {
	if len(entries) > 1 {
		return true
	}
	e, marked := entries[0], false
	for i := range e.incoming {
		marked = markUnstorable(&e.incoming[i], err) || marked
	}
	if marked {
		tellUnstorable(w.g.log, e.record, err)
	}
	return marked
}

// markUnstorable marks what the database refused, and says whether it was not marked already.
func markUnstorable(in *message.Incoming, err error) bool {
	if in.Result != message.IngestStored {
		return false
	}
	in.Result, in.Detail = message.IngestUnstorable, message.Clean(err.Error(), detailBytes)
	return true
}

func tellUnstorable(log *slog.Logger, r *message.Record, err error) {
	log.Error("the database refuses a record; it is stored as failed", "topic", r.Topic, "partition", r.Partition,
		"offset", r.Offset, "error", err)
}

// isolate stores entries in halves, until the one to blame is alone. The halves go one after the other, so that the
// positions of partitions that are in both move step by step; without the first, the second may not be stored.
func (w *writer) isolate(ctx context.Context, entries []entry) bool {
	half := len(entries) / 2
	return (half == 0 || w.save(ctx, entries[:half])) && w.save(ctx, entries[half:])
}

// report counts what became of a batch.
func (w *writer) report(t *transaction, saved *message.Saved, took time.Duration) {
	type count struct {
		topic  string
		result message.IngestResult
	}
	counts := map[count]int{}
	for i, result := range saved.Results {
		counts[count{t.batch.Incoming[i].Record.Topic, result}]++
	}
	m := w.g.cfg.Metrics
	m.IngestBatch(took)
	for c, n := range counts {
		m.IngestRecords(c.topic, c.result, n)
	}
	tellConflicts(w.g.log, saved.Conflicts)
}

func tellConflicts(log *slog.Logger, conflicts []message.ConflictPair) {
	for _, c := range conflicts {
		log.Warn("two records have one message key and different values; the second is stored as failed, reason conflict",
			"route", c.Route, "message_key", c.Key, "first", c.First.String(), "second", c.Second.String())
	}
}
