package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store/storedb"
)

const (
	// purgeLook bounds how many messages one statement looks at.
	purgeLook = 10_000
	// purgeMost bounds the messages of one purging transaction. It begins with fewer and follows how long they take, so
	// that large payloads and slow disks make small transactions.
	purgeFirst, purgeMost = 100, 1000
	purgeQuick, purgeSlow = 50 * time.Millisecond, 200 * time.Millisecond
	// sweepEvery is the time after which delivered messages are looked at from the oldest one on again.
	sweepEvery = 24 * time.Hour
	// sweepAgain is how much of the time before the end of a sweep the next run looks at again: most of what was not
	// delivered at once is delivered by then, and ids do not grow with received_at any more closely.
	sweepAgain = 5 * time.Minute
)

// Purge goes over settled messages and deletes those that are past their retention. Call Next until it says that there is
// no more, or until there is no more time: what is left is met again by the next one.
//
// A purged message is gone from messages, deliveries, failures and unsettled, and counted in purged, by one transaction.
// Its attempts stay until their day is dropped (DropAttempts). A message is deleted only under the lock of its delivery,
// after a second look, so that a replay either comes first, and it stays, or finds it gone. What others have locked is
// passed over, so that nobody is waited for.
//
// An ingester may find a key taken, and then find the message that had it gone:
//
//	ingester: INSERT … ON CONFLICT DO NOTHING: key k exists
//	purge: deletes the message with key k, commits
//	ingester: reads the message with key k, to compare payloads: there is none
//
// It runs its transaction again (errVanished), and stores the record as a new message.
type Purge struct {
	// Purged counts the messages deleted so far, by route.
	Purged map[string]int64
	// Waiting counts failed messages that are past their time, and whose dead letters are not written yet.
	Waiting int64
	// Status is that of the messages.
	Status message.Status

	s       *Store
	walk    walk
	routes  []string
	cutoff  time.Time // what was settled before is past its time
	letters bool
	due     []int64
	batch   int
}

// walk finds messages that may be past their time.
type walk interface {
	// next returns the next ones, once the ones before are purged.
	next(ctx context.Context, p *Purge) (due []int64, more bool, err error)
}

// PurgeDelivered begins a purge of the delivered messages of all routes that have the same retention, which is taken in
// whole seconds, rounded up.
//
// deliveries has no index by which delivered messages could be found, and must have none. But ids grow with the time of
// storing, so a purge walks up the primary key, from where the last one stopped, to the first message that is younger than
// the retention: each run looks at what has passed that age since the last one. What was not delivered yet when the
// walk came past it is met by the next sweep, which begins with the oldest message once a day.
func (s *Store) PurgeDelivered(ctx context.Context, keep time.Duration, routes []string) (*Purge, error) {
	seconds := int64((keep + time.Second - 1) / time.Second)
	p, err := s.newPurge(ctx, time.Duration(seconds)*time.Second, message.StatusDelivered, routes)
	if err != nil {
		return nil, err
	}
	w := &sweep{keep: seconds}
	err = s.inTx(ctx, "reading how far the purge has come", func(tx pgx.Tx) error {
		at, err := s.q.RetentionGet(ctx, tx, seconds, sweepEvery.Seconds())
		if err != nil {
			return err
		}
		w.saved, w.at, w.old = at.SweptTo, at.SweptTo, at.Old
		if w.sure, err = s.q.MessageBefore(ctx, tx, w.saved, stamp(p.cutoff.Add(-sweepAgain))); err != nil {
			return err
		}
		w.end, err = s.q.MessageBefore(ctx, tx, w.sure, stamp(p.cutoff))
		return err
	})
	p.walk = w
	return p, err
}

// PurgeFailed begins a purge of the failed messages of a route. With dead letters, one whose dead letter is not written
// stays: that there is no record of it in Kafka is somebody's fault, and retention must not cover it up.
func (s *Store) PurgeFailed(ctx context.Context, keep time.Duration, route string, deadLetters bool) (*Purge, error) {
	p, err := s.newPurge(ctx, keep, message.StatusFailed, []string{route})
	if err != nil {
		return nil, err
	}
	p.letters = deadLetters
	p.walk = &failures{route: route, afterAt: pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}}
	return p, nil
}

func (s *Store) newPurge(ctx context.Context, keep time.Duration, status message.Status, routes []string) (*Purge, error) {
	now, err := s.Now(ctx)
	return &Purge{
		Purged: map[string]int64{}, Status: status, s: s, routes: routes, cutoff: now.Add(-keep), batch: purgeFirst,
	}, err
}

// Next does one short step, and says whether there is more to do.
func (p *Purge) Next(ctx context.Context) (more bool, err error) {
	if len(p.due) == 0 {
		p.due, more, err = p.walk.next(ctx, p)
		return more, err
	}
	n := min(len(p.due), p.batch)
	begun := time.Now()
	if err := p.purge(ctx, p.due[:n]); err != nil {
		return false, err
	}
	p.due = p.due[n:]
	switch took := time.Since(begun); {
	case took > purgeSlow:
		p.batch = max(1, p.batch/2)
	case took < purgeQuick:
		p.batch = min(purgeMost, p.batch*2)
	}
	return true, nil
}

func (p *Purge) purge(ctx context.Context, ids []int64) error {
	var gone []storedb.PurgeDeleteRow
	err := p.s.inTx(ctx, fmt.Sprintf("purging %d %s messages", len(ids), p.Status), func(tx pgx.Tx) error {
		gone = nil
		locked, err := p.s.q.PurgeLock(ctx, tx, storedb.PurgeLockParams{
			MessageIds: ids, Routes: p.routes, Status: p.Status.String(), Cutoff: stamp(p.cutoff), DeadLetters: p.letters,
		})
		if err != nil || len(locked) == 0 {
			return err
		}
		gone, err = p.s.q.PurgeDelete(ctx, tx, locked, p.Status.String())
		return err
	})
	if err != nil {
		return err
	}
	for _, g := range gone {
		p.Purged[g.Route] += g.Messages
	}
	return nil
}

// sweep walks up the primary key of deliveries.
type sweep struct {
	keep  int64 // seconds
	saved int64 // where the row in retention stands
	at    int64 // looked at up to here
	sure  int64 // the row does not go further than this
	end   int64 // the last message that is older than the retention
	old   bool  // the sweep began long ago
}

func (w *sweep) next(ctx context.Context, p *Purge) ([]int64, bool, error) {
	if ours, err := w.save(ctx, p.s); err != nil || !ours {
		return nil, false, err
	}
	if w.at >= w.end {
		return nil, false, w.anew(ctx, p.s)
	}
	row, err := p.s.q.PurgeLookDelivered(ctx, planned{p.s.pool}, storedb.PurgeLookDeliveredParams{
		Routes: p.routes, Cutoff: stamp(p.cutoff), After: w.at, UpTo: w.end, Batch: purgeLook,
	})
	if err != nil {
		return nil, false, wrap("looking for delivered messages to purge", err)
	}
	w.at = w.end
	if row.Looked == purgeLook {
		w.at = row.Last
	}
	return row.Due, true, nil
}

// save notes how far the sweep has come. False: another forwarder has, and goes on with it.
func (w *sweep) save(ctx context.Context, s *Store) (bool, error) {
	to := min(w.at, w.sure)
	if to <= w.saved {
		return true, nil
	}
	n, err := s.q.RetentionSwept(ctx, s.pool, to, w.keep, w.saved)
	w.saved = to
	return n > 0, wrap("noting how far the purge has come", err)
}

// anew has the next run begin with the oldest message.
func (w *sweep) anew(ctx context.Context, s *Store) error {
	if !w.old {
		return nil
	}
	_, err := s.q.RetentionAnew(ctx, s.pool, w.keep, w.saved)
	return wrap("beginning the purge with the oldest message again", err)
}

// failures walks up the failures of a route by their time.
type failures struct {
	route   string
	afterAt pgtype.Timestamptz
	afterID int64
}

func (w *failures) next(ctx context.Context, p *Purge) ([]int64, bool, error) {
	rows, err := p.s.q.PurgeLookFailed(ctx, planned{p.s.pool}, storedb.PurgeLookFailedParams{
		Route: w.route, Cutoff: stamp(p.cutoff), AfterAt: w.afterAt, AfterID: w.afterID, Batch: purgeLook,
	})
	if err != nil {
		return nil, false, wrap("looking for failed messages to purge", err)
	}
	var due []int64
	for _, r := range rows {
		if p.letters && !r.DeadLettered {
			p.Waiting++
		} else {
			due = append(due, r.MessageID)
		}
		w.afterAt, w.afterID = r.FailedAt, r.MessageID
	}
	return due, len(rows) > 0, nil
}
