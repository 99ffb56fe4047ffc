package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

const (
	resolveLimit = 10 * time.Second
	resolveRetry = 500 * time.Millisecond
)

var errResolve = errors.New("no answer about where partitions stand within 10 s")

// resolveLoop finds out where partitions are to be read from.
func (g *Ingester) resolveLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.resolve:
		}
		limited, cancel := context.WithTimeoutCause(ctx, resolveLimit, errResolve)
		err := g.resolveAll(limited)
		cancel()
		if err == nil {
			g.health.clear(PartKafka, faultRead)
			continue
		}
		if ctx.Err() != nil {
			return
		}
		g.health.fault(PartKafka, faultRead, err.Error())
		g.log.Warn("finding out where partitions stand, trying again; they are not read until then", "error", err)
		t := time.NewTimer(resolveRetry)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		kick(g.resolve)
	}
}

// question is a partition whose start is looked for, as it was when the question was asked.
type question struct {
	p     *partition
	epoch int
	check bool
}

func (g *Ingester) resolveAll(ctx context.Context) error {
	var questions []question
	var tps []message.TopicPartition
	topics := map[string]bool{}
	g.mu.Lock()
	for tp, p := range g.parts {
		if p.phase == starting {
			questions = append(questions, question{p, p.epoch, p.check})
			tps = append(tps, tp)
			topics[tp.Topic] = true
		}
	}
	g.mu.Unlock()
	if len(questions) == 0 {
		return nil
	}
	names := make([]string, 0, len(topics))
	for t := range topics {
		names = append(names, t)
	}
	ids, err := g.src.TopicIDs(ctx, names)
	if err != nil {
		return err
	}
	rows, err := g.cfg.Saver.Positions(ctx, g.cfg.Group, tps)
	if err != nil {
		return err
	}
	committed, err := g.src.Committed(ctx, tps)
	if err != nil {
		return err
	}
	rowOf := map[message.TopicPartition]message.StoredPosition{}
	for _, r := range rows {
		rowOf[r.TopicPartition] = r
	}
	committedOf := map[message.TopicPartition]message.Committed{}
	for _, c := range committed {
		committedOf[c.TopicPartition] = c
	}
	var errs []error
	for _, q := range questions {
		id, ok := ids[q.p.Topic]
		if !ok {
			errs = append(errs, fmt.Errorf("topic %s does not exist", q.p.Topic)) //nolint:err113 // for the log
			continue
		}
		errs = append(errs, g.resolveOne(ctx, q, id, rowOf, committedOf))
	}
	return errors.Join(errs...)
}

// resolveOne decides where one partition starts: at its row, if that is of the same topic; without a row at what the
// group committed, and else at the first record.
func (g *Ingester) resolveOne(ctx context.Context, q question, id message.TopicID, rows map[message.TopicPartition]message.StoredPosition, committed map[message.TopicPartition]message.Committed) error {
	tp := q.p.TopicPartition
	row, hasRow := rows[tp]
	com, hasCommitted := committed[tp]
	if hasCommitted {
		if of, ours := isOurs(com.Metadata); ours && of != id {
			hasCommitted = false // it counts in a topic of the same name that is gone
		}
	}
	var start int64
	reset := false
	switch {
	case hasRow && row.TopicID == id:
		start = row.NextOffset
		if _, ours := isOurs(com.Metadata); hasCommitted && !ours && com.Offset < start {
			g.log.Warn("the group's offset was set back by an operator; reading again from there", "topic", tp.Topic,
				"partition", tp.Partition, "from", com.Offset, "was", start)
			start, reset = com.Offset, true
		}
	case hasRow:
		first, _, err := g.src.Bounds(ctx, tp)
		if err != nil {
			return err
		}
		g.log.Warn("the topic was deleted and created again; reading it from its start", "topic", tp.Topic, "partition", tp.Partition,
			"old_id", row.TopicID.String(), "new_id", id.String())
		start, reset = first, true
	case hasCommitted:
		start = com.Offset
	default:
		first, _, err := g.src.Bounds(ctx, tp)
		if err != nil {
			return err
		}
		start = first
	}
	if q.check {
		first, end, err := g.src.Bounds(ctx, tp)
		if err != nil {
			return err
		}
		if start < first || start > end {
			g.log.Error("the position is not in Kafka; reading from the first record that is", "topic", tp.Topic,
				"partition", tp.Partition, "position", start, "first", first, "end", end)
			start, reset = first, true
		}
	}
	if reset {
		at := message.StoredPosition{TopicPartition: tp, TopicID: id, NextOffset: start}
		if err := g.cfg.Saver.ResetPosition(ctx, g.cfg.Group, at); err != nil {
			return err
		}
		g.cfg.Metrics.PositionRewind()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := q.p; !p.gone && p.phase == starting && p.epoch == q.epoch {
		p.topicID, p.start, p.row, p.next, p.check = id, start, start, start, false
		p.commit, p.committed = start, -1
		if hasCommitted {
			p.committed = com.Offset
		}
		if !reset {
			p.commit = -1
		}
		p.phase = resolved
	}
	return nil
}
