package ingest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

// What a revocation may wait for. It runs inside Poll, and the whole group waits with it.
const (
	revokeSaveLimit   = 5 * time.Second
	revokeCommitLimit = 3 * time.Second
)

var errRevokeCommit = errors.New("no answer to the commit before giving partitions up within 3 s")

// Assigned takes new partitions in. They are read once their position is known.
func (g *Ingester) Assigned(tps []message.TopicPartition) {
	g.health.clear(PartKafka, faultGroup)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, tp := range tps {
		w := g.writerFor(tp) // before it counts itself
		g.parts[tp] = newPartition(tp, w)
	}
	g.reapply = true
	g.attention.Store(true)
	if len(tps) > 0 {
		g.log.Info("partitions assigned", "partitions", names(tps), "owned", len(g.parts))
		kick(g.resolve)
	}
}

// Revoked gives partitions up. The order matters:
//
//	we read p up to 100 and store 1–80; the group takes p from us and gives it to B
//	if p were given up first: B starts at our row, 80, while we store 81–100 and B stores 81–100 too
//
// (the database refuses one of the two, but both would have worked in vain). And for the commit:
//
//	we give p up and commit 80 afterwards; B has committed 200 → the committed offset falls back to 80
//
// So: first p is gone, which keeps its buffered records from being stored and further commits from being made; then
// its running transaction ends; then what it stored is committed; then librdkafka gives p up. A lost assignment may
// have its new owner already: nothing is committed for it, and nothing need be waited for.
func (g *Ingester) Revoked(tps []message.TopicPartition, lost bool) {
	var gone []*partition
	var saving []chan struct{}
	g.mu.Lock()
	for _, tp := range tps {
		p, ok := g.parts[tp]
		if !ok {
			continue
		}
		p.gone = true
		delete(g.parts, tp)
		p.writer.forget(p)
		gone = append(gone, p)
		if p.saving != nil {
			saving = append(saving, p.saving)
		}
		kick(p.writer.revoked) // if it waits to try again, p is not part of that any more
	}
	g.reapply = true
	g.attention.Store(true)
	g.mu.Unlock()

	if lost {
		g.log.Warn("partitions lost: the group took this process for dead; what was stored stays, what was not is read by their new owner",
			"partitions", names(tps))
	} else {
		g.log.Info("partitions revoked", "partitions", names(tps))
		g.awaitSaves(saving)
		ctx, cancel := context.WithTimeoutCause(context.Background(), revokeCommitLimit, errRevokeCommit)
		defer cancel()
		if err := g.commitOf(ctx, gone); err != nil {
			g.log.Warn("partitions are given up without their last commit; their new owner reads from their position in the database",
				"partitions", names(tps), "error", err)
		}
	}
	for _, p := range gone {
		g.cfg.Metrics.IngestGone(p.Topic, p.Partition)
	}
}

// awaitSaves waits for transactions. One that takes longer is left alone: it either moves the position's row before its
// new owner reads it, or finds it moved and stores nothing.
func (g *Ingester) awaitSaves(saving []chan struct{}) {
	limit := time.NewTimer(revokeSaveLimit)
	defer limit.Stop()
	for _, done := range saving {
		select {
		case <-done:
		case <-limit.C:
			g.log.Warn("a transaction is still running for partitions that are given up")
			return
		}
	}
}

// Record buffers a record for its partition's writer.
func (g *Ingester) Record(r *message.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.parts[r.TopicPartition]
	if !ok || p.phase != running {
		return // read before the partition was (re)started; Start reads it again
	}
	if r.Offset < p.next {
		// We did not seek: the topic is not what it was. Nothing of it may be stored before we know.
		g.log.Warn("a record came below the expected offset", "topic", r.Topic, "partition", r.Partition,
			"offset", r.Offset, "expected", p.next)
		p.check = true
		g.restart(p)
		return
	}
	g.hear(p)
	r.TopicID = p.topicID
	p.writer.push(item{p: p, epoch: p.epoch, after: p.next, to: r.Offset + 1, record: r})
	p.next = r.Offset + 1
}

// End notes that everything in a partition was read. The last offsets may hold no record: markers of transactions,
// aborted records, what compaction removed. The position moves over them, so that who looks at the group's lag sees
// none when there is nothing to do.
func (g *Ingester) End(tp message.TopicPartition, offset int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.parts[tp]
	if !ok || p.phase != running {
		return
	}
	g.hear(p)
	if offset > p.next {
		p.writer.push(item{p: p, epoch: p.epoch, after: p.next, to: offset})
		p.next = offset
	}
}

// OffsetLost has all partitions started anew, since some of them is not read any more.
func (g *Ingester) OffsetLost() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.parts {
		p.check = true
		if p.phase != starting {
			g.restart(p)
		}
	}
}

// Trouble is an error that the consumer gets over, or that an operator must deal with.
func (g *Ingester) Trouble(err error) {
	g.log.Warn("kafka", "error", err)
	var refused interface{ Refused() bool }
	if errors.As(err, &refused) && refused.Refused() {
		g.health.fault(PartKafka, faultGroup, err.Error())
	} else {
		g.health.note(err.Error())
	}
	kick(g.watch)
}

// names writes partitions for the log, in order.
func names(tps []message.TopicPartition) []string {
	out := make([]string, len(tps))
	for i, tp := range tps {
		out[i] = tp.String()
	}
	slices.Sort(out)
	return out
}
