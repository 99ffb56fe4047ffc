package ingest

import (
	"context"
	"errors"
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

// query is one partition whose start is looked for, as it was when the search began.
type query struct {
	p     *partition
	tp    message.TopicPartition
	epoch int
	check bool
	moved bool
	known bool
	left  int64 // where this process believed the row to stand, when moved
}

// pending are the partitions whose start is to be found out. One with a running transaction waits for its end, since
// that moves the row.
func (g *Ingester) pending() []query {
	g.mu.Lock()
	defer g.mu.Unlock()
	var pending []query
	for tp, p := range g.parts {
		if p.phase == starting && p.saving == nil {
			pending = append(pending, query{p: p, tp: tp, epoch: p.epoch, check: p.check, moved: p.moved, known: p.known, left: p.row})
		}
	}
	return pending
}

// facts are what is known about partitions.
type facts struct {
	ids       map[string]message.TopicID
	rows      map[message.TopicPartition]message.StoredPosition
	committed map[message.TopicPartition]message.Committed
}

// resolveAll finds out the starts, and says whether it found all of them. Rows that are to be made or changed are so
// before anything is read: a partition that is read has a row, of the topic that it is read from.
func (g *Ingester) resolveAll(ctx context.Context, pending []query) bool {
	f, err := g.facts(ctx, pending)
	if err != nil {
		if ctx.Err() == nil {
			g.log.Warn("partitions wait until it is known where they start", "error", err)
		}
		return false
	}
	all, n := true, &findings{}
	var starts []*search
	var changes []message.PositionChange
	for _, q := range pending {
		id, ok := f.ids[q.tp.Topic]
		if !ok {
			all = false // the topic is being deleted; the watcher tells
			kick(g.watch)
			continue
		}
		s := &search{g: g, q: q, id: id, facts: f, findings: n}
		if err := s.run(ctx); err != nil {
			all = false
			if ctx.Err() == nil {
				g.log.Warn("a partition waits until it is known where it starts", "topic", q.tp.Topic,
					"partition", q.tp.Partition, "error", err)
			}
			continue
		}
		starts = append(starts, s)
		if s.change != nil {
			changes = append(changes, *s.change)
		}
	}
	if !g.change(ctx, changes) {
		return false
	}
	for _, s := range starts {
		s.done()
	}
	n.tell(g.log, g.cfg.Metrics)
	return all
}

// change makes and moves rows. When some stand elsewhere meanwhile, all is found out anew.
func (g *Ingester) change(ctx context.Context, changes []message.PositionChange) bool {
	if len(changes) == 0 {
		return true
	}
	err := g.within(ctx, PartDatabase, func(ctx context.Context) error {
		return g.cfg.Saver.ChangePositions(ctx, g.cfg.Group, changes)
	})
	if err != nil && ctx.Err() == nil {
		g.log.Warn("partitions wait until their positions are set", "error", err)
	}
	return err == nil
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
	// Last, so that nothing that happened before Kafka answered is missing in the rows: a commit comes after its row, so
	// that a row that is behind the commit now has gone back.
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
	var moved *message.PositionsMovedError
	switch {
	case ctx.Err() != nil:
	case err != nil && !errors.As(err, &moved):
		g.health.fault(part, faultRead, err.Error())
	default:
		g.health.clear(part, faultRead)
	}
	return err
}

// done hands the start to the polling goroutine, unless the partition is gone or was restarted since.
func (s *search) done() {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	p := s.q.p
	if p.gone || p.epoch != s.q.epoch || p.phase != starting {
		return
	}
	p.topicID, p.row, p.committed = s.id, s.start, s.committed
	p.check, p.moved, p.known = false, false, true
	p.phase = resolved
	s.g.attention.Store(true)
	s.g.log.Debug("a partition starts", "topic", p.Topic, "partition", p.Partition, "offset", p.row)
}
