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

// Replay is a replay by filter that has begun.
type Replay struct {
	ID        int64
	StartedAt time.Time // what was settled later is not part of it
	UpdatedAt time.Time // when it last went on
	UpTo      int64     // the last message that there was at StartedAt
	DoneTo    int64     // messages up to this one are done
	Replayed  int64     // how many it made pending
}

// ReplayStep is what one transaction of a replay did.
type ReplayStep struct {
	Replayed int
	Finished bool // there is nothing left
	// Gone says that the replay was not there to go on with: another process finished it, or began anew.
	Gone bool
}

// MaxReplayStep is how many messages one transaction replays at most.
const MaxReplayStep = 500

// UnfinishedReplay returns the replay of this filter that was interrupted, or is at work, and went on within the last 24
// hours; nil for none.
func (s *Store) UnfinishedReplay(ctx context.Context, filter string) (*Replay, error) {
	var r *Replay
	err := s.inTx(ctx, "looking for an interrupted replay", func(tx pgx.Tx) (err error) {
		r, err = s.unfinished(ctx, tx, filter)
		return err
	})
	return r, err
}

func (s *Store) unfinished(ctx context.Context, tx pgx.Tx, filter string) (*Replay, error) {
	rows, err := s.q.ReplayUnfinished(ctx, tx, filter)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	u := rows[0]
	return &Replay{
		ID: u.ID, StartedAt: u.StartedAt.Time, UpdatedAt: u.UpdatedAt.Time, UpTo: u.UpTo, DoneTo: u.DoneTo, Replayed: u.Replayed,
	}, nil
}

// BeginReplay begins a replay, or goes on with the unfinished one of the same filter, unless it is to begin anew: then that
// one is ended, also where another process is at work on it. Two that begin at once share one.
func (s *Store) BeginReplay(ctx context.Context, filter string, anew bool) (*Replay, error) {
	var r *Replay
	err := s.inTx(ctx, "beginning a replay", func(tx pgx.Tx) (err error) {
		if err := s.q.ReplaysLock(ctx, tx); err != nil {
			return err
		}
		if r = nil; !anew {
			if r, err = s.unfinished(ctx, tx, filter); r != nil || err != nil {
				return err
			}
		}
		if err := s.q.ReplaysForget(ctx, tx); err != nil {
			return err
		}
		if err := s.q.ReplaysEnd(ctx, tx, filter); err != nil {
			return err
		}
		begun, err := s.q.ReplayBegin(ctx, tx, filter)
		if err != nil {
			return err
		}
		r = &Replay{ID: begun.ID, StartedAt: begun.StartedAt.Time, UpdatedAt: begun.StartedAt.Time, UpTo: begun.UpTo}
		return nil
	})
	return r, err
}

// StepReplay replays the next messages, at most that many, in one transaction, which also notes how far the replay has
// come. So whenever it is killed, each message is either done and behind DoneTo, or as it was. Several processes may work
// on one replay; they take turns.
//
// What was settled after the replay began is left alone:
//
//	a replay has come to message 4; message 7 is pending and fails
//	the replay comes to 7, which was not failed when it was asked for
func (s *Store) StepReplay(ctx context.Context, id int64, sel *ReplaySelection, limit int) (ReplayStep, error) {
	var step ReplayStep
	err := s.inTx(ctx, "replaying messages", func(tx pgx.Tx) error {
		step = ReplayStep{}
		locked, err := s.q.ReplayLock(ctx, tx, id)
		if err != nil {
			return err
		}
		if len(locked) == 0 {
			step.Finished, step.Gone = true, true
			return nil
		}
		at := locked[0]
		page, err := s.replayPage(ctx, tx, sel, replayRange{
			after: at.DoneTo, upTo: at.UpTo, settledTo: at.StartedAt, limit: min(limit, MaxReplayStep),
		})
		if err != nil {
			return err
		}
		done, err := s.replay(ctx, tx, page.ids(), at.StartedAt, sel.filter)
		if err != nil {
			return err
		}
		step.Replayed, step.Finished = len(done), page.end
		return s.q.ReplayStep(ctx, tx, storedb.ReplayStepParams{
			ID: id, DoneTo: page.last, Replayed: int64(len(done)), Finished: page.end,
		})
	})
	return step, err
}

// ReplayMessages replays single messages, at most MaxReplayStep, as far as they have the filter's status, and returns
// which. Nothing else of the filter counts but NewKey.
func (s *Store) ReplayMessages(ctx context.Context, ids []int64, f ReplayFilter) ([]int64, error) {
	var done []int64
	err := s.inTx(ctx, opOrphans("replaying", len(ids)), func(tx pgx.Tx) (err error) {
		done, err = s.replay(ctx, tx, ids, forever(), f)
		return err
	})
	return done, err
}

// replayer stands for a forwarder in the tallies, of which replays take back.
const replayer = "replay"

// replay gives messages jobs of their own, as far as they still have the status, and makes them pending. An unstorable one
// is left alone: what was stored of it is not what came. It returns which.
func (s *Store) replay(ctx context.Context, tx pgx.Tx, ids []int64, settledTo pgtype.Timestamptz, f ReplayFilter) ([]int64, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	locked, err := s.q.DeliveriesSettledLock(ctx, tx, ids, f.Status.String(), settledTo)
	if err != nil {
		return nil, fmt.Errorf("locking deliveries: %w", err)
	}
	r := reopening{wasDelivered: f.Status == message.StatusDelivered, newKey: f.NewKey, by: replayer}
	var jobs []forwardJob
	for _, row := range locked {
		if message.Reason(row.Reason) == message.Unstorable {
			continue
		}
		r.ids, r.routes = append(r.ids, row.MessageID), append(r.routes, row.Route)
		jobs = append(jobs, ownJob(row.MessageID, row.Route, row.MessageKey, row.PayloadBytes, time.Time{}))
	}
	if r.jobs, err = s.insertJobs(ctx, tx, jobs); err != nil {
		return nil, err
	}
	if _, err = s.reopen(ctx, tx, r); err != nil {
		return nil, err
	}
	return r.ids, nil
}

// Reopen makes a failed message pending again, as a replay of its own job, if the job owns it: its attempts and its max_age
// start anew, and what its failure left is taken back. It returns when the message is due from; the zero time, when it was
// not failed or is another job's.
func (s *Store) Reopen(ctx context.Context, messageID, jobID int64, forwarder string) (time.Time, error) {
	var due time.Time
	err := s.inTx(ctx, opOrphans("replaying", 1), func(tx pgx.Tx) error {
		due = time.Time{}
		locked, err := s.q.DeliveriesSettledLock(ctx, tx, []int64{messageID}, message.StatusFailed.String(), forever())
		if err != nil || len(locked) == 0 || locked[0].JobID != jobID {
			return err
		}
		due, err = s.reopen(ctx, tx, reopening{
			ids: []int64{messageID}, routes: []string{locked[0].Route}, jobs: []int64{jobID}, by: forwarder,
		})
		return err
	})
	return due, err
}

// reopening are settled messages that the transaction has locked, and the jobs that own them from now on.
type reopening struct {
	ids          []int64 // in order
	routes       []string
	jobs         []int64
	wasDelivered bool // else they were failed
	newKey       bool
	by           string // whose tallies are changed
}

// reopen makes settled messages pending again, and takes back what their settling left: this is the one place that does.
// It returns when the first is due from.
func (s *Store) reopen(ctx context.Context, tx pgx.Tx, r reopening) (time.Time, error) {
	if len(r.ids) == 0 {
		return time.Time{}, nil
	}
	reopened, err := s.q.DeliveriesReopen(ctx, tx, r.newKey, r.ids, r.jobs)
	if err != nil {
		return time.Time{}, fmt.Errorf("making messages pending: %w", err)
	}
	gone, err := s.q.FailuresForget(ctx, tx, r.ids)
	if err != nil {
		return time.Time{}, fmt.Errorf("deleting failures: %w", err)
	}
	if err := s.q.UnsettledAdd(ctx, tx, r.ids); err != nil {
		return time.Time{}, fmt.Errorf("adding to unsettled: %w", err)
	}
	sums := tallies{}
	for _, g := range gone {
		sums.add(r.by, g.Route, tally{failed: -1})
	}
	if r.wasDelivered {
		for _, route := range r.routes {
			sums.add(r.by, route, tally{delivered: -1})
		}
	}
	return reopened[0].DueFrom.Time, s.addTallies(ctx, tx, sums)
}

// forever is a time behind all others.
func forever() pgtype.Timestamptz {
	return pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
}

// WhyPending says what a pending message waits for.
type WhyPending struct {
	JobID    int64     // 0: none
	JobState string    // River's; empty: the job is gone
	At       time.Time // when the job runs, if it waits for a time
}

// WhyPending returns nil for a message that is not pending.
func (s *Store) WhyPending(ctx context.Context, messageID int64) (*WhyPending, error) {
	rows, err := s.q.ReplayPending(ctx, s.pool, messageID)
	if err != nil {
		return nil, wrap("reading what a message waits for", err)
	}
	if len(rows) == 0 {
		return nil, nil //nolint:nilnil // as documented
	}
	return &WhyPending{JobID: rows[0].JobID, JobState: rows[0].State, At: rows[0].ScheduledAt.Time}, nil
}
