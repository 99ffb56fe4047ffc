package store

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ferry-forward/ferry/internal/message"
)

// MessageStatus is a row of the view message_status: its fields are the columns, null where they are.
type MessageStatus struct {
	ID            int64          `json:"message_id"`
	Route         string         `json:"route"`
	Key           string         `json:"message_key"`
	Lane          *string        `json:"lane"`
	Topic         string         `json:"topic"`
	Partition     int32          `json:"partition"`
	Offset        int64          `json:"offset"`
	ProducedAt    *time.Time     `json:"produced_at"`
	ReceivedAt    time.Time      `json:"received_at"`
	Status        message.Status `json:"status"` // empty: its row in deliveries is gone
	Reason        *string        `json:"reason"`
	Detail        *string        `json:"detail"`
	Attempts      int32          `json:"attempts"`
	HTTPStatus    *int32         `json:"http_status"`
	ErrorCode     *string        `json:"error_code"`
	Error         *string        `json:"error"`
	NextAttemptAt *time.Time     `json:"next_attempt_at"`
	SettledAt     *time.Time     `json:"settled_at"`
}

// ListPage is a part of what fits a filter, the newest first.
type ListPage struct {
	Messages []MessageStatus
	// Next is the id after which the next page goes on; 0: there is no more.
	Next int64
}

// listSteps bounds what one statement of List looks at.
type listSteps struct {
	window int // ids of messages or deliveries, failures, unsettled messages
	probe  int // matches of an index that is not in the order of ids: up to so many are taken at once, and sorted
	fetch  int // messages that are read by their ids
	first  int // rows that the first statement along an index looks at, which do if most of them fit
}

func defaultSteps() listSteps {
	return listSteps{window: 20_000, probe: 20_000, fetch: 1_000, first: 500}
}

// List returns up to limit messages that fit the filter, the newest first, with ids below after (0: from the newest).
// It returns a *FilterError for a filter that can't be meant, else an *Error.
//
// Its cost is bounded: it goes down the ids in many small statements until the page is full, each of which looks at 20,000
// rows, or 200,000 entries of an index, at most. Where an index says more, it goes along that: failures, unsettled, keys and
// positions. A filter that nothing fits, and no index knows, looks at all messages; end ctx to stop it.
func (s *Store) List(ctx context.Context, f Filter, after int64, limit int) (*ListPage, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	if f.Reason != "" {
		f.Status = message.StatusFailed
	}
	l := &listing{s: s, f: &f, steps: s.steps, want: limit + 1, ids: ids{1, math.MaxInt64}}
	if after > 0 {
		l.below = after
	}
	err := s.again(ctx, "listing messages", func() error { return l.run(ctx) })
	if err != nil {
		return nil, err
	}
	p := &ListPage{Messages: l.page}
	if len(l.page) > limit {
		p.Messages = l.page[:limit]
		p.Next = p.Messages[limit-1].ID
	}
	return p, nil
}

// listing is one page in the making.
type listing struct {
	ids // what is left to look at

	s     *Store
	f     *Filter
	steps listSteps
	want  int // one more than a page has, to know whether there is more
	page  []MessageStatus
}

// partitions are those of a topic, index by index.
type partitions struct {
	routes   []string
	topicIDs []pgtype.UUID
	numbers  []int32
}

func (l *listing) run(ctx context.Context) error {
	l.page = nil
	if err := l.bounds(ctx); err != nil {
		return err
	}
	if done, err := l.probe(ctx, l.steps.probe); done || err != nil {
		return err
	}
	switch l.f.Status {
	case message.StatusFailed:
		return l.failures(ctx)
	case message.StatusPending:
		return l.pending(ctx)
	case message.StatusDelivered:
	}
	return l.all(ctx)
}

// all goes down all ids: some windows, which do if what fits is everywhere; then it may be all in one place, long ago,
// and more of an index is worth reading than before.
func (l *listing) all(ctx context.Context) error {
	const windows, wider = 5, 10
	last, err := collectIDs(ctx, l.s, lastBelowSQL(l.below))
	if err != nil || len(last) == 0 {
		return err
	}
	newest := ids{max(l.from, last[0]+1-windows*int64(l.steps.window)), l.below}
	if err := l.windows(ctx, newest); err != nil || l.full() {
		return err
	}
	l.below = newest.from
	if done, err := l.probe(ctx, wider*l.steps.probe); done || err != nil {
		return err
	}
	return l.windows(ctx, l.ids)
}

// bounds makes bounds of ids of the bounds of time, with some slack.
func (l *listing) bounds(ctx context.Context) error {
	if !l.f.Since.IsZero() {
		from, err := l.s.firstReceived(ctx, l.f.Since.Add(-receivedSlack))
		if err != nil {
			return err
		}
		l.from = max(l.from, from)
	}
	if !l.f.Until.IsZero() {
		below, err := l.s.firstReceived(ctx, l.f.Until.Add(receivedSlack))
		if err != nil {
			return err
		}
		l.below = min(l.below, below)
	}
	return nil
}

// probe asks the indexes that are not in the order of ids. If one of them has up to n messages, all that fits is among
// these, and the page is done.
func (l *listing) probe(ctx context.Context, n int) (done bool, err error) {
	probes, err := l.probes(ctx, n+1)
	if err != nil {
		return false, err
	}
	for _, q := range probes {
		found, err := collectIDs(ctx, l.s, q)
		if err != nil {
			return false, err
		}
		if len(found) <= n {
			return true, l.take(ctx, found)
		}
	}
	return false, nil
}

func (l *listing) probes(ctx context.Context, n int) (probes []*query, err error) {
	switch {
	case l.f.Topic != "":
		p, err := l.partitions(ctx)
		if err != nil {
			return nil, err
		}
		probes = append(probes, positionSQL(l.f, p, n))
	case len(l.f.Routes) > 0:
		probes = append(probes, routesSQL(l.f.Routes, n))
	}
	if l.f.KeyPrefix != "" {
		routes := l.f.Routes
		if len(routes) == 0 {
			if routes, err = l.s.RoutesStored(ctx); err != nil {
				return nil, err
			}
		}
		probes = append(probes, prefixSQL(l.f, routes, n))
	}
	return probes, nil
}

// partitions returns those of the topic that messages came from.
func (l *listing) partitions(ctx context.Context) (partitions, error) {
	partition := int32(-1)
	if l.f.Partition != nil {
		partition = *l.f.Partition
	}
	var p partitions
	rows, err := l.s.q.PartitionsStored(ctx, l.s.pool, l.f.Topic, append([]string{}, l.f.Routes...), partition)
	for _, r := range rows {
		p.routes, p.topicIDs, p.numbers = append(p.routes, r.Route), append(p.topicIDs, r.TopicID), append(p.numbers, r.Partition)
	}
	return p, err
}

// take reads messages of which all that fits is among the ids.
func (l *listing) take(ctx context.Context, found []int64) error {
	slices.Sort(found)
	slices.Reverse(found)
	found = slices.DeleteFunc(found, func(id int64) bool { return id < l.from || id >= l.below })
	return l.fetch(ctx, found)
}

// full says whether the page is.
func (l *listing) full() bool { return len(l.page) >= l.want }

// fetch reads the messages of ids, the newest of which comes first, and puts on the page what fits, until it is full.
func (l *listing) fetch(ctx context.Context, found []int64) error {
	for some := range slices.Chunk(found, l.steps.fetch) {
		if l.full() {
			return nil
		}
		q := fetchSQL(l.f, some)
		rows, err := planned{l.s.pool}.Query(ctx, q.String(), q.args...)
		if err != nil {
			return err
		}
		more, err := pgx.CollectRows(rows, pgx.RowToStructByPos[MessageStatus])
		if err != nil {
			return err
		}
		l.page = append(l.page, more[:min(len(more), l.want-len(l.page))]...)
	}
	return nil
}

// windows goes down a range of ids.
func (l *listing) windows(ctx context.Context, r ids) error {
	for below := r.below; !l.full(); {
		// Nothing is above the last message, and in a gap nothing at all.
		last, err := collectIDs(ctx, l.s, lastBelowSQL(below))
		if err != nil || len(last) == 0 || last[0] < r.from {
			return err
		}
		window := ids{max(r.from, last[0]+1-int64(l.steps.window)), last[0] + 1}
		want := l.want - len(l.page)
		found, err := collectIDs(ctx, l.s, windowSQL(l.f, window, want))
		if err != nil {
			return err
		}
		if err := l.fetch(ctx, found); err != nil {
			return err
		}
		below = window.from
		if len(found) == want {
			below = found[want-1] // not all were read
		}
	}
	return nil
}

// failuresIndex is an index of failures that is in the order of ids.
type failuresIndex int

const (
	byID failuresIndex = iota
	byRoute
	byReason
)

// failures goes down the failed messages, along the index of the routes or of the reason. Asked for both, it takes that of
// the reason unless the routes have few.
func (l *listing) failures(ctx context.Context) error {
	by := byID
	switch {
	case l.f.Reason != "" && len(l.f.Routes) > 0:
		by = byReason
		few, err := collectIDs(ctx, l.s, failuresProbeSQL(l.f, l.steps.probe+1))
		if err != nil {
			return err
		}
		if few[0] <= int64(l.steps.probe) {
			by = byRoute
		}
	case l.f.Reason != "":
		by = byReason
	case len(l.f.Routes) > 0:
		by = byRoute
	}
	return l.along(ctx, l.ids, func(r ids, n int) *query { return failuresSQL(l.f, r, n, by) })
}

// pending goes down the messages that reconcile has not looked at for sure, then those that it keeps an eye on, which
// together have all that are pending; see Look.
func (l *listing) pending(ctx context.Context) error {
	sure, err := l.s.q.PendingBounds(ctx, l.s.pool)
	if err != nil {
		return err
	}
	if err := l.windows(ctx, ids{max(l.from, sure+1), l.below}); err != nil {
		return err
	}
	return l.along(ctx, ids{l.from, min(l.below, sure+1)}, func(r ids, n int) *query { return unsettledSQL(l.f, r, n) })
}

// along goes down a range along an index that is in the order of ids: in small steps first, which do if most of it fits.
func (l *listing) along(ctx context.Context, r ids, sql func(r ids, n int) *query) error {
	for n := l.steps.first; !l.full() && r.from < r.below; n = min(4*n, l.steps.window) {
		var looked, last int64
		var found []int64
		q := sql(r, n)
		rows, err := planned{l.s.pool}.Query(ctx, q.String(), q.args...)
		if err != nil {
			return err
		}
		if _, err := pgx.ForEachRow(rows, []any{&looked, &last, &found}, func() error { return nil }); err != nil {
			return err
		}
		if err := l.fetch(ctx, found); err != nil {
			return err
		}
		if looked < int64(n) {
			return nil
		}
		r.below = last
	}
	return nil
}

func collectIDs(ctx context.Context, s *Store, q *query) ([]int64, error) {
	rows, err := planned{s.pool}.Query(ctx, q.String(), q.args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}
