package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store/storedb"
)

// ReplayFilter says which messages are to be replayed, and how.
type ReplayFilter struct {
	Status       message.Status   // failed or delivered
	Routes       []string         // each once
	Reasons      []message.Reason // of failed ones; empty: all
	Since, Until time.Time        // received from Since on, and before Until; zero: whenever
	NewKey       bool             // with a new Idempotency-Key
}

// ReplaySelection is a filter with the ids between which its messages are.
type ReplaySelection struct {
	filter       ReplayFilter
	after, upTo  int64
	reasons      []string
	since, until pgtype.Timestamptz
}

// SelectReplay finds out between which ids the messages of the filter are.
func (s *Store) SelectReplay(ctx context.Context, f ReplayFilter) (*ReplaySelection, error) {
	sel := &ReplaySelection{
		filter: f, since: pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}, until: forever(),
	}
	reasons := f.Reasons
	if len(reasons) == 0 {
		reasons = message.Reasons()
	}
	for _, r := range reasons {
		sel.reasons = append(sel.reasons, r.String())
	}
	if f.Routes == nil {
		sel.filter.Routes = []string{}
	}
	const anyID = 1<<63 - 1
	sel.upTo = anyID
	if !f.Since.IsZero() {
		sel.since = stamp(f.Since)
		first, err := s.firstReceived(ctx, f.Since.Add(-receivedSlack))
		if err != nil {
			return nil, err
		}
		sel.after = first - 1
	}
	if !f.Until.IsZero() {
		sel.until = stamp(f.Until)
		first, err := s.firstReceived(ctx, f.Until.Add(receivedSlack))
		if err != nil {
			return nil, err
		}
		sel.upTo = first - 1
	}
	return sel, nil
}

// receivedSlack is more than received_at can differ from the order of the ids: the length of a transaction that stores.
const receivedSlack = 5 * time.Minute

// firstReceived returns the id of about the first message that was received at t or later: ids below it are of messages
// received before t plus the length of a transaction, those from it on of messages received after t minus that. Without
// one it returns an id that no message has yet; a later one may get it.
func (s *Store) firstReceived(ctx context.Context, t time.Time) (int64, error) {
	before, err := s.q.MessageBefore(ctx, s.pool, 0, stamp(t))
	if err != nil {
		return 0, wrap("looking for a time", err)
	}
	return before + 1, nil
}

// ReplayCount is what a selection matches.
type ReplayCount struct {
	Routes     map[string]int64
	Unstorable int64   // which are left out, and not in Routes
	Newest     []int64 // the last few of them, in order
}

// Matched returns how many there are.
func (c *ReplayCount) Matched() int64 {
	var n int64
	for _, r := range c.Routes {
		n += r
	}
	return n
}

const (
	replayCountPage = 10_000 // messages that one statement counts
	replayLookedAt  = 10_000 // messages that one statement looks at for delivered ones
	// ReplaySamples is how many messages a count names.
	ReplaySamples = 10
)

// CountReplay counts what is to be replayed, or is left to be by r if that is not nil. It changes and locks nothing.
func (s *Store) CountReplay(ctx context.Context, sel *ReplaySelection, r *Replay) (*ReplayCount, error) {
	rg := replayRange{upTo: sel.upTo, settledTo: forever(), limit: replayCountPage}
	if r != nil {
		rg.after, rg.upTo, rg.settledTo = r.DoneTo, r.UpTo, stamp(r.StartedAt)
	}
	c := &ReplayCount{Routes: map[string]int64{}}
	for {
		var page *replayPage
		err := s.again(ctx, "counting messages to replay", func() (err error) {
			page, err = s.replayPage(ctx, planned{s.pool}, sel, rg)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, f := range page.found {
			if f.unstorable {
				c.Unstorable++
				continue
			}
			c.Routes[f.route]++
			c.Newest = append(c.Newest, f.id)
		}
		c.Newest = c.Newest[max(0, len(c.Newest)-ReplaySamples):]
		if rg.after = page.last; page.end {
			return c, nil
		}
	}
}

// replayRange is where a page is looked for.
type replayRange struct {
	after, upTo int64
	settledTo   pgtype.Timestamptz
	limit       int
}

// replayPage are the next messages to replay, in the order of their ids.
type replayPage struct {
	found []foundToReplay
	last  int64 // up to which was looked
	end   bool  // there is nothing behind it
}

type foundToReplay struct {
	id         int64
	route      string
	unstorable bool
}

// ids returns those that can be replayed.
func (p *replayPage) ids() []int64 {
	ids := make([]int64, 0, len(p.found))
	for _, f := range p.found {
		if !f.unstorable {
			ids = append(ids, f.id)
		}
	}
	return ids
}

func (s *Store) replayPage(ctx context.Context, db storedb.DBTX, sel *ReplaySelection, r replayRange) (*replayPage, error) {
	r.after, r.upTo = max(r.after, sel.after), min(r.upTo, sel.upTo)
	if r.after >= r.upTo {
		return &replayPage{last: r.after, end: true}, nil
	}
	if sel.filter.Status == message.StatusDelivered {
		return s.deliveredPage(ctx, db, sel, r)
	}
	row, err := s.q.ReplayFailed(ctx, db, storedb.ReplayFailedParams{
		Routes: sel.filter.Routes, Reasons: sel.reasons, After: r.after, UpTo: r.upTo, SettledTo: r.settledTo,
		AnyTime: sel.anyTime(), Since: sel.since, Until: sel.until, LookedAt: int32Of(int64(r.limit)),
	})
	if err != nil {
		return nil, err
	}
	page := &replayPage{last: row.Last}
	for i, id := range row.MessageIds {
		page.found = append(page.found, foundToReplay{id, row.Routes[i], message.Reason(row.Reasons[i]) == message.Unstorable})
	}
	if row.Looked < int64(r.limit) {
		page.last, page.end = r.upTo, true
	}
	return page, nil
}

func (s *Store) deliveredPage(ctx context.Context, db storedb.DBTX, sel *ReplaySelection, r replayRange) (*replayPage, error) {
	row, err := s.q.ReplayDelivered(ctx, db, storedb.ReplayDeliveredParams{
		Routes: sel.filter.Routes, After: r.after, UpTo: r.upTo, SettledTo: r.settledTo,
		AnyTime: sel.anyTime(), Since: sel.since, Until: sel.until, LookedAt: replayLookedAt, Batch: int32Of(int64(r.limit)),
	})
	if err != nil {
		return nil, err
	}
	page := &replayPage{last: row.Last}
	for i, id := range row.MessageIds {
		page.found = append(page.found, foundToReplay{id: id, route: row.Routes[i]})
	}
	switch {
	case len(page.found) == r.limit:
		page.last = page.found[r.limit-1].id
	case row.Looked < replayLookedAt:
		page.last, page.end = r.upTo, true
	}
	return page, nil
}

// anyTime says that it does not matter when a message was received.
func (sel *ReplaySelection) anyTime() bool {
	return sel.filter.Since.IsZero() && sel.filter.Until.IsZero()
}

// RoutesStored returns the routes that ever stored anything.
func (s *Store) RoutesStored(ctx context.Context) ([]string, error) {
	routes, err := s.q.RoutesKnown(ctx, s.pool)
	if err != nil {
		return nil, wrap("reading the routes", err)
	}
	return routes, nil
}
