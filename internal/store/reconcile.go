package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Finding is why reconcile took up a message.
type Finding string

// The findings, a closed set. All but Repaired are the state of the job that owns a pending message.
const (
	FoundMissing   Finding = "missing"   // deleted by hand
	FoundCompleted Finding = "completed" // a bug
	FoundDiscarded Finding = "discarded" // a bug, or a rescue at the last attempt
	FoundCancelled Finding = "cancelled" // by an operator
	FoundRepaired  Finding = "repaired"  // it was failed and is no longer, by somebody's SQL
)

// Findings returns all findings.
func Findings() []Finding {
	return []Finding{FoundMissing, FoundCompleted, FoundDiscarded, FoundCancelled, FoundRepaired}
}

// String returns the finding's name in the log.
func (f Finding) String() string { return string(f) }

// Orphan is a message that a look at a batch found.
type Orphan struct {
	MessageID, JobID int64 // the job that owned it then; 0: none
	Finding          Finding
}

// Checked is what became of looking at one batch.
type Checked struct {
	Orphans []Orphan
	From    int64 // the batch begins behind this message id
	To      int64 // and ends with this one; 0: at the end of the table, and the next one begins at its start
}

const (
	// reconcileBatch bounds how many messages one statement of reconcile looks at.
	reconcileBatch = 10_000
	// lateCommits is how long after a first look the second one comes: longer than a transaction that stores messages can
	// live. It has about ten statements, of which each may take statementTimeout and each pause idleInTxTimeout.
	lateCommits = 15 * time.Minute
)

// Look takes a batch of new messages and puts those that are pending into unsettled; it says whether there may be more
// to look at. Over all runs each message is looked at twice, because one look can miss it:
//
//	ingester 1 takes message id 7 from the sequence and has not committed
//	ingester 2 stores message 8 and commits
//	reconcile looks behind 6, sees 8 alone and notes that it has come to 8
//	ingester 1 commits message 7, which is behind what is noted
//
// An id below one that was visible was taken before that moment. So when all transactions of that moment have ended, a
// second look up to the same id sees what there will ever be.
func (s *Store) Look(ctx context.Context) (more bool, err error) {
	err = s.inTx(ctx, "looking for new pending messages", func(tx pgx.Tx) error {
		at, err := s.q.ReconcileLock(ctx, tx, lateCommits.Seconds())
		if err != nil {
			return err
		}
		const anyID = 1<<63 - 1
		first, err := s.q.ReconcileLook(ctx, tx, at.SeenTo, anyID, reconcileBatch)
		if err != nil {
			return err
		}
		seen, sure, mark := max(at.SeenTo, first.Last), at.SureTo, at.Mark
		more = first.Looked == reconcileBatch
		if at.Ripe && !more {
			second, err := s.q.ReconcileLook(ctx, tx, sure, mark, reconcileBatch)
			if err != nil {
				return err
			}
			if more = second.Looked == reconcileBatch; more {
				sure = second.Last
			} else {
				sure, mark = mark, seen
			}
		}
		return s.q.ReconcileLooked(ctx, tx, seen, sure, mark)
	})
	return more, err
}

// CheckUnsettled looks at the next batch of unsettled messages and returns those of the routes that have no live job.
func (s *Store) CheckUnsettled(ctx context.Context, routes []string) (*Checked, error) {
	var c *Checked
	err := s.inTx(ctx, "looking at pending messages and their jobs", func(tx pgx.Tx) error {
		at, err := s.q.ReconcileLock(ctx, tx, 0)
		if err != nil {
			return err
		}
		row, err := s.q.UnsettledCheck(ctx, tx, at.Checked, reconcileBatch, routes)
		if err != nil {
			return err
		}
		c = &Checked{From: at.Checked}
		if row.Looked == reconcileBatch {
			c.To = row.Last
		}
		for i, id := range row.MessageIds {
			c.Orphans = append(c.Orphans, Orphan{MessageID: id, JobID: row.JobIds[i], Finding: Finding(row.Findings[i])})
		}
		return s.q.ReconcileChecked(ctx, tx, c.To, at.FailuresChecked)
	})
	return c, err
}

// CheckFailures looks at the next batch of failures and returns the messages of the routes that are not failed: an
// UPDATE by hand made them pending, and left the row of failures and the sums as they were.
func (s *Store) CheckFailures(ctx context.Context, routes []string) (*Checked, error) {
	var c *Checked
	err := s.inTx(ctx, "looking at failures", func(tx pgx.Tx) error {
		at, err := s.q.ReconcileLock(ctx, tx, 0)
		if err != nil {
			return err
		}
		row, err := s.q.FailuresCheck(ctx, tx, at.FailuresChecked, reconcileBatch, routes)
		if err != nil {
			return err
		}
		c = &Checked{From: at.FailuresChecked}
		if row.Looked == reconcileBatch {
			c.To = row.Last
		}
		for i, id := range row.MessageIds {
			c.Orphans = append(c.Orphans, Orphan{MessageID: id, JobID: row.JobIds[i], Finding: FoundRepaired})
		}
		return s.q.ReconcileChecked(ctx, tx, at.Checked, c.To)
	})
	return c, err
}

// RunningBefore says how much longer than now an earlier run of a job may go on that was rescued at rescuedAt, by what the
// forwarders say of themselves. The runners are the ids of those that ran the job, the rescued run's among them.
//
// River's leader rescues everybody's jobs by its own setting, which comes from its own route file. With two route files
// side by side that may be too early:
//
//	forwarder A leads; its longest request takes 10 s, so that it rescues after 40 s
//	forwarder B, with a newer file, runs a job whose request may take 60 s, and which it may run for 125 s
//	after 40 s A rescues the job, and run 2 begins, while run 1 is still waiting for an answer
//	run 2 would send again what run 1 has sent
//
// At the rescue, run 1 was at least as old as the shortest time of all forwarders, one of which was the leader. So it is
// over when the rest of its own time has passed. With one route file everywhere the two are equal, and nobody waits. B
// is taken at its word whether it lives or not: a process that is frozen looks dead.
func (s *Store) RunningBefore(ctx context.Context, runners []string, rescuedAt time.Time) (time.Duration, error) {
	// The leader wrote its sign of life every ten seconds, or it would hardly have rescued; clocks may differ.
	const since = 5 * time.Minute
	row, err := s.q.RescueTimes(ctx, s.pool, runners, stamp(rescuedAt.Add(-since)))
	if err != nil {
		return 0, wrap("reading how long jobs may run", err)
	}
	rest := time.Duration(max(0, row.Longest-row.Shortest)) * time.Millisecond
	return max(0, rescuedAt.Add(rest).Sub(row.Now.Time)), nil
}

func opOrphans(doing string, n int) string { return fmt.Sprintf("%s %d messages", doing, n) }
