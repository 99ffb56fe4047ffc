package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

const (
	resolveLimit = 3 * time.Second // of each request
	resolveRetry = 500 * time.Millisecond
)

var errResolveLimit = errors.New("no answer within 3 s")

// resolveLoop finds out where partitions start.
func (g *Ingester) resolveLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.resolve:
		}
		for {
			pending := g.pending()
			if len(pending) == 0 {
				break
			}
			if g.resolveAll(ctx, pending) {
				continue // others may have come meanwhile
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(resolveRetry):
			}
		}
	}
}

// pending are the partitions whose start is to be found out. One with a running transaction waits for its end, since
// that moves the row.
func (g *Ingester) pending() []query {
	g.mu.Lock()
	defer g.mu.Unlock()
	var pending []query
	for tp, p := range g.parts {
		if p.phase == starting && p.saving == nil {
			pending = append(pending, query{p: p, tp: tp, epoch: p.epoch, check: p.check, moved: p.moved, left: p.row})
		}
	}
	return pending
}

// query is one partition whose start is looked for, as it was when the search began.
type query struct {
	p     *partition
	tp    message.TopicPartition
	epoch int
	check bool
	moved bool
	left  int64 // where this process believed the row to stand, when moved
}

// facts are what is known about partitions.
type facts struct {
	ids       map[string]message.TopicID
	rows      map[message.TopicPartition]message.StoredPosition
	committed map[message.TopicPartition]message.Committed
}

// resolveAll finds out the starts, and says whether it found all of them.
func (g *Ingester) resolveAll(ctx context.Context, pending []query) bool {
	f, err := g.facts(ctx, pending)
	if err != nil {
		if ctx.Err() == nil {
			g.log.Warn("partitions wait until it is known where they start", "error", err)
		}
		return false
	}
	all := true
	for _, q := range pending {
		id, ok := f.ids[q.tp.Topic]
		if !ok {
			all = false // the topic is being deleted; the watcher tells
			kick(g.watch)
			continue
		}
		s := search{g: g, q: q, id: id, facts: f}
		if err := s.run(ctx); err != nil {
			all = false
			if ctx.Err() == nil {
				g.log.Warn("a partition waits until it is known where it starts", "topic", q.tp.Topic,
					"partition", q.tp.Partition, "error", err)
			}
			continue
		}
		s.done()
	}
	return all
}

// facts asks Kafka and the database. The part that does not answer is not ready.
func (g *Ingester) facts(ctx context.Context, pending []query) (facts, error) {
	f := facts{rows: map[message.TopicPartition]message.StoredPosition{}, committed: map[message.TopicPartition]message.Committed{}}
	tps := make([]message.TopicPartition, len(pending))
	topics, seen := []string{}, map[string]bool{}
	for i, q := range pending {
		tps[i] = q.tp
		if !seen[q.tp.Topic] {
			seen[q.tp.Topic] = true
			topics = append(topics, q.tp.Topic)
		}
	}
	var err error
	if err = g.within(ctx, PartKafka, func(ctx context.Context) error {
		if f.ids, err = g.src.TopicIDs(ctx, topics); err != nil {
			return err
		}
		committed, err := g.src.Committed(ctx, tps)
		for _, c := range committed {
			f.committed[c.TopicPartition] = c
		}
		return err
	}); err != nil {
		return f, err
	}
	// Last, so that nothing that happened before Kafka answered is missing in the rows.
	return f, g.within(ctx, PartDatabase, func(ctx context.Context) error {
		rows, err := g.cfg.Saver.Positions(ctx, g.cfg.Group, tps)
		for _, r := range rows {
			f.rows[r.TopicPartition] = r
		}
		return err
	})
}

// within makes a request with a limit and keeps the part's readiness.
func (g *Ingester) within(ctx context.Context, part string, request func(context.Context) error) error {
	limited, cancel := context.WithTimeoutCause(ctx, resolveLimit, errResolveLimit)
	defer cancel()
	err := request(limited)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		g.health.fault(part, faultRead, err.Error())
	default:
		g.health.clear(part, faultRead)
	}
	return err
}

// search decides where one partition starts.
type search struct {
	g  *Ingester
	q  query
	id message.TopicID
	facts

	start     int64
	row       int64 // where the row stands, or is made with the first batch
	hasRow    bool
	committed int64
}

func (s *search) run(ctx context.Context) error {
	row, hasRow := s.rows[s.q.tp]
	s.committed = -1
	commit, hasCommit := s.facts.committed[s.q.tp]
	commitID, ours := isOurs(commit.Metadata)
	switch {
	case !hasCommit || !ours:
	case commitID == s.id:
		s.committed = commit.Offset
	default:
		hasCommit = false // it counts in a topic that was deleted
	}
	var none message.TopicID
	switch {
	case hasRow && row.TopicID == none && s.id != none:
		// Stored through a broker that had no topic ids: taken for the same topic.
		if err := s.reset(ctx, row.NextOffset); err != nil {
			return err
		}
	case hasRow && row.TopicID != s.id:
		s.warn("the topic was deleted and created again; it is read from its beginning", "was", row.TopicID.String(), "is", s.id.String())
		return s.fromFirst(ctx, true)
	case hasRow && hasCommit && !ours && commit.Offset < row.NextOffset:
		s.warn("the group's offset was set back; everything from there is read again", "from", row.NextOffset, "offset", commit.Offset)
		if err := s.reset(ctx, commit.Offset); err != nil {
			return err
		}
	case hasRow:
		s.start, s.row, s.hasRow = row.NextOffset, row.NextOffset, true
		s.tellMove()
	case s.q.moved:
		s.g.cfg.Metrics.PositionRewind()
		s.warn("the database lost the partition's position; it is read from its beginning")
		return s.fromFirst(ctx, false)
	case hasCommit:
		s.start, s.row = commit.Offset, commit.Offset
		s.q.check = true // whoever committed it, the records may be gone
	default:
		return s.fromFirst(ctx, false)
	}
	return s.within(ctx)
}

// tellMove says where a row went that was not where this process had left it.
func (s *search) tellMove() {
	switch {
	case !s.q.moved:
	case s.row < s.q.left:
		s.g.cfg.Metrics.PositionRewind()
		s.warn("the database stands at an earlier position, as after a restore or a failover; what it lost is read again",
			"from", s.q.left, "offset", s.row)
	default:
		s.warn("the position was moved on, by another process or by a transaction whose outcome was not known",
			"from", s.q.left, "offset", s.row)
	}
}

// within checks a start that may not be in Kafka any more.
func (s *search) within(ctx context.Context) error {
	if !s.q.check {
		return nil
	}
	first, end, err := s.bounds(ctx)
	if err != nil {
		return err
	}
	switch {
	case s.start < first:
		s.g.log.Error("Kafka removed records before they were read; raise the topic's retention",
			"topic", s.q.tp.Topic, "partition", s.q.tp.Partition, "from", s.start, "offset", first, "removed", first-s.start)
		s.start = first // the row follows with the first batch
		if !s.hasRow {
			s.row = first
		}
	case s.start > end:
		// The partition was cut off, or the offset was never in it. What was written since may lie anywhere below.
		s.warn("the position lies beyond the partition's end; it is read from its beginning", "from", s.start, "end", end)
		return s.reset(ctx, first)
	}
	return nil
}

// fromFirst starts at the first record there is. Reset says that a row stands in the way.
func (s *search) fromFirst(ctx context.Context, reset bool) error {
	first, _, err := s.bounds(ctx)
	if err != nil {
		return err
	}
	if reset {
		return s.reset(ctx, first)
	}
	s.start, s.row = first, first
	return nil
}

// reset puts the row to where reading starts.
func (s *search) reset(ctx context.Context, offset int64) error {
	s.start, s.row, s.hasRow = offset, offset, true
	return s.g.within(ctx, PartDatabase, func(ctx context.Context) error {
		return s.g.cfg.Saver.ResetPosition(ctx, s.g.cfg.Group, message.StoredPosition{
			TopicPartition: s.q.tp, TopicID: s.id, NextOffset: offset,
		})
	})
}

func (s *search) bounds(ctx context.Context) (first, end int64, err error) {
	err = s.g.within(ctx, PartKafka, func(ctx context.Context) error {
		first, end, err = s.g.src.Bounds(ctx, s.q.tp)
		return err
	})
	return first, end, err
}

// done hands the start to the polling goroutine, unless the partition is gone or was restarted since.
func (s *search) done() {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	p := s.q.p
	if p.gone || p.epoch != s.q.epoch || p.phase != starting {
		return
	}
	p.topicID, p.start, p.row, p.committed = s.id, s.start, s.row, s.committed
	p.check, p.moved = false, false
	p.phase = resolved
	s.g.attention.Store(true)
	p.commit = -1
	if s.hasRow {
		// What Kafka has may be behind (killed between save and commit), or ahead (the database went back).
		p.commit = s.row
		kick(s.g.commits)
	}
	s.g.log.Debug("a partition starts", "topic", p.Topic, "partition", p.Partition, "offset", p.start,
		"position", fmt.Sprint(p.row))
}

func (s *search) warn(text string, args ...any) {
	s.g.log.Warn(text, append([]any{"topic", s.q.tp.Topic, "partition", s.q.tp.Partition}, args...)...)
}
