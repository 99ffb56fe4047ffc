package ingest

import (
	"context"
	"errors"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

const faultSave = "save"

// store stores the items, however long it takes: it gives up only what is not ours any more, and at the end of the
// process. What is stored raises the offsets to commit.
func (w *writer) store(ctx context.Context, items []item) {
	g := w.g
	held := 0
	for _, it := range items {
		held += it.size()
	}
	defer func() {
		g.mu.Lock()
		w.release(held)
		g.mu.Unlock()
	}()
	incoming := g.evaluate(ctx, items)
	away := false
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		b := w.begin(items, incoming)
		if b == nil {
			break // nothing of it is ours any more
		}
		start := time.Now()
		err := w.save(ctx, b)
		w.end(b)
		if err == nil {
			g.cfg.Metrics.IngestBatch(time.Since(start))
			break
		}
		var moved *message.PositionsMovedError
		if errors.As(err, &moved) {
			w.moved(moved)
			continue // what is left of the batch goes on
		}
		if ctx.Err() != nil {
			return
		}
		away = true
		w.stall(true)
		g.health.fault(PartDatabase, faultSave, err.Error())
		g.log.Warn("storing a batch, trying again: its partitions are paused, polling goes on", "records", len(b.items), "error", err)
		w.pause(ctx, wait)
		if ctx.Err() != nil {
			return
		}
	}
	if away {
		w.stall(false)
		g.log.Info("the database takes records again")
	}
	g.health.clear(PartDatabase, faultSave)
}

// work is a batch in work.
type work struct {
	batch *message.Batch
	items []item
	parts map[message.TopicPartition]*partition
	done  chan struct{}
	// unstorable: its one record is stored without what the database refuses.
	unstorable bool
}

// begin makes a batch of those items that are still ours. From here to end, a revocation waits for it.
//
//	the check, then the revocation, then the save: the save would store behind the new owner's back,
//
// which the compare-and-set of the positions refuses; the check only spares it the work.
func (w *writer) begin(items []item, incoming [][]message.Incoming) *work {
	g := w.g
	g.mu.Lock()
	defer g.mu.Unlock()
	b := &work{batch: &message.Batch{Group: g.cfg.Group}, parts: map[message.TopicPartition]*partition{}, done: make(chan struct{})}
	at := map[message.TopicPartition]int{}
	for i, it := range items {
		if !it.valid() || it.record.Offset < it.p.row {
			continue // or stored already, when a batch was cut in parts
		}
		tp := it.p.TopicPartition
		n, ok := at[tp]
		if !ok {
			n = len(b.batch.Advances)
			at[tp] = n
			b.parts[tp] = it.p
			it.p.saving = b.done
			b.batch.Advances = append(b.batch.Advances, message.Advance{TopicPartition: tp, TopicID: it.p.topicID, From: it.p.row})
		}
		b.batch.Advances[n].To = it.record.Offset + 1
		b.batch.Incoming = append(b.batch.Incoming, incoming[i]...)
		b.items = append(b.items, it)
	}
	if len(b.items) == 0 {
		return nil
	}
	return b
}

func (w *writer) end(b *work) {
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	for _, p := range b.parts {
		if p.saving == b.done {
			p.saving = nil
		}
	}
	close(b.done)
}

// save runs the transaction; when the database refuses a record it saves each half apart, until the guilty one stands
// alone and is stored as failed.
func (w *writer) save(ctx context.Context, b *work) error {
	saved, err := w.g.cfg.Saver.Save(ctx, b.batch)
	if err == nil {
		w.stored(b, saved)
		return nil
	}
	var fault interface{ RowFault() bool }
	if !errors.As(err, &fault) || !fault.RowFault() || b.unstorable {
		return err
	}
	for _, part := range w.halves(b, err) {
		if err := w.save(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// halves cuts a batch in two between records; of a batch of one record it returns that record as unstorable.
func (w *writer) halves(b *work, cause error) []*work {
	if len(b.items) == 1 {
		r := b.items[0].record
		w.g.log.Error("the database refuses a record; it is stored as failed", "topic", r.Topic, "partition", r.Partition,
			"offset", r.Offset, "error", cause)
		one := *b.batch
		one.Incoming = append([]message.Incoming(nil), one.Incoming...)
		for i := range one.Incoming {
			if one.Incoming[i].Result == message.IngestStored {
				one.Incoming[i].Result, one.Incoming[i].Detail = message.IngestUnstorable, cause.Error()
			}
		}
		return []*work{{batch: &one, items: b.items, parts: b.parts, done: b.done, unstorable: true}}
	}
	var out []*work
	half := len(b.items) / 2
	for _, items := range [][]item{b.items[:half], b.items[half:]} {
		in := map[*message.Record]bool{}
		part := &work{batch: &message.Batch{Group: b.batch.Group}, items: items, parts: b.parts, done: b.done}
		at := map[message.TopicPartition]int{}
		w.g.mu.Lock()
		for _, it := range items {
			in[it.record] = true
			tp := it.p.TopicPartition
			n, ok := at[tp]
			if !ok {
				n = len(part.batch.Advances)
				at[tp] = n
				part.batch.Advances = append(part.batch.Advances, message.Advance{TopicPartition: tp, TopicID: it.p.topicID})
			}
			part.batch.Advances[n].To = it.record.Offset + 1
		}
		w.g.mu.Unlock()
		for _, i := range b.batch.Incoming {
			if in[i.Record] {
				part.batch.Incoming = append(part.batch.Incoming, i)
			}
		}
		out = append(out, part)
	}
	// Each part moves the rows from where the one before left them.
	from := map[message.TopicPartition]int64{}
	for _, a := range b.batch.Advances {
		from[a.TopicPartition] = a.From
	}
	for _, part := range out {
		for i := range part.batch.Advances {
			a := &part.batch.Advances[i]
			a.From = from[a.TopicPartition]
			from[a.TopicPartition] = a.To
		}
	}
	return out
}

// stored notes what a transaction did: where the rows stand, and what may be committed.
func (w *writer) stored(b *work, saved *message.Saved) {
	g := w.g
	g.mu.Lock()
	for _, a := range b.batch.Advances {
		p := b.parts[a.TopicPartition]
		p.row, p.commit, p.rowLost = a.To, a.To, false
	}
	g.mu.Unlock()
	kick(g.commits)
	counts := map[string]map[message.IngestResult]int{}
	for i, r := range saved.Results {
		topic := b.batch.Incoming[i].Record.Topic
		if counts[topic] == nil {
			counts[topic] = map[message.IngestResult]int{}
		}
		counts[topic][r]++
	}
	for topic, byResult := range counts {
		for r, n := range byResult {
			g.cfg.Metrics.IngestRecords(topic, r, n)
		}
	}
	for _, c := range saved.Conflicts {
		g.log.Warn("two different payloads under one key; the second one is stored as failed", "route", c.Route,
			"message_key", c.Key, "first", c.First.String(), "second", c.Second.String())
	}
}

// moved has partitions read again from where their rows stand: another process moved them, or the database went back.
func (w *writer) moved(e *message.PositionsMovedError) {
	w.g.log.Warn("positions are not where this process left them; nothing was stored, reading again from there",
		"partitions", names(e.Partitions))
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	for _, tp := range e.Partitions {
		if p, ok := w.g.parts[tp]; ok {
			w.g.restart(p)
		}
	}
}
