package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store/storedb"
)

// Repaired is a message whose state reconcile has put right.
type Repaired struct {
	MessageID, JobID int64 // its job now
	Route, Key       string
	Finding          Finding
}

// Rehome gives orphans jobs of their own, as far as they are still orphans, and returns what it changed. An orphan that
// was repaired by SQL starts anew, as after a replay, and what its failure left in failures and the sums is taken back. A
// message whose job is cancelled, and which was not repaired, stays as it is: see FailCancelled.
//
// Ended jobs are locked first, and looked at again under the lock, then the messages:
//
//	reconcile finds message 5, whose job 9 is discarded
//	an operator retries job 9: it runs and sends message 5
//	reconcile gives message 5 to a new job 10, which sends it too
//
// River's retry and this transaction both lock the job's row. So either job 9 is live when it is looked at again, and
// message 5 stays its own; or job 10 owns message 5 before job 9 can run, which then finds that it owns nothing. What was
// settled or has left for another job meanwhile no longer has the job that it was found with. A job that is gone does not
// come back.
func (s *Store) Rehome(ctx context.Context, orphans []Orphan, forwarder string) ([]Repaired, error) {
	var done []Repaired
	err := s.inTx(ctx, opOrphans("giving new jobs to", len(orphans)), func(tx pgx.Tx) error {
		h := rehoming{s: s, tx: tx, found: map[int64]int64{}}
		done = nil
		if err := h.lock(ctx, orphans); err != nil {
			return err
		}
		var err error
		done, err = h.run(ctx, forwarder)
		return err
	})
	return done, err
}

// rehoming is one transaction of Rehome.
type rehoming struct {
	s     *Store
	tx    pgx.Tx
	found map[int64]int64 // message → the job that it was found with

	jobs     map[int64]string // state of the jobs that exist
	rows     []storedb.DeliveriesUnfailedLockRow
	repaired map[int64]string // message → route
}

func (h *rehoming) lock(ctx context.Context, orphans []Orphan) error {
	ids, jobIDs := make([]int64, len(orphans)), make([]int64, len(orphans))
	for i, o := range orphans {
		h.found[o.MessageID] = o.JobID
		ids[i], jobIDs[i] = o.MessageID, o.JobID
	}
	jobs, err := h.s.q.JobsLock(ctx, h.tx, jobIDs)
	if err != nil {
		return err
	}
	h.jobs = make(map[int64]string, len(jobs))
	for _, j := range jobs {
		h.jobs[j.ID] = j.State
	}
	rows, err := h.s.q.DeliveriesUnfailedLock(ctx, h.tx, ids)
	if err != nil {
		return err
	}
	h.rows = slices.DeleteFunc(rows, func(r storedb.DeliveriesUnfailedLockRow) bool {
		return r.JobID != h.found[r.MessageID] || r.JobID == 0 && r.InLane
	})
	return nil
}

// state returns what became of the job of a locked message.
func (h *rehoming) state(r *storedb.DeliveriesUnfailedLockRow) (f Finding, live bool) {
	state, ok := h.jobs[r.JobID]
	if !ok {
		return FoundMissing, false
	}
	switch f := Finding(state); f {
	case FoundCompleted, FoundDiscarded, FoundCancelled:
		return f, false
	case FoundMissing, FoundRepaired:
	}
	return "", true
}

func (h *rehoming) run(ctx context.Context, forwarder string) ([]Repaired, error) {
	if len(h.rows) == 0 {
		return nil, nil
	}
	if err := h.forgetFailures(ctx); err != nil {
		return nil, err
	}
	var done []Repaired
	var jobs []forwardJob
	var ids, restarted []int64
	for i := range h.rows {
		r := &h.rows[i]
		finding, live := h.state(r)
		pending := r.Status == message.StatusPending.String()
		_, repaired := h.repaired[r.MessageID]
		rejob := pending && !live && (repaired || finding != FoundCancelled)
		if repaired {
			finding = FoundRepaired
			if pending {
				restarted = append(restarted, r.MessageID)
			}
		}
		if !rejob && !repaired {
			continue
		}
		done = append(done, Repaired{MessageID: r.MessageID, JobID: r.JobID, Route: r.Route, Key: r.MessageKey, Finding: finding})
		if rejob {
			ids = append(ids, r.MessageID)
			jobs = append(jobs, ownJob(r.MessageID, r.Route, r.MessageKey, r.PayloadBytes, later(r.NextAttemptAt.Time)))
		}
	}
	if len(done) == 0 {
		return nil, nil
	}
	if err := h.move(ctx, ids, jobs, done); err != nil {
		return nil, err
	}
	if err := h.s.q.DeliveriesRestart(ctx, h.tx, restarted); err != nil {
		return nil, err
	}
	if err := h.s.q.UnsettledAdd(ctx, h.tx, append(ids, restarted...)); err != nil {
		return nil, err
	}
	sums := tallies{}
	for _, route := range h.repaired {
		sums.add(forwarder, route, tally{failed: -1})
	}
	return done, h.s.addTallies(ctx, h.tx, sums)
}

// later is a time to wait for, or none: a job that is due is inserted for now, by the database's clock.
func later(t time.Time) time.Time {
	if time.Until(t) <= 0 {
		return time.Time{}
	}
	return t
}

func (h *rehoming) forgetFailures(ctx context.Context) error {
	ids := make([]int64, len(h.rows))
	for i := range h.rows {
		ids[i] = h.rows[i].MessageID
	}
	gone, err := h.s.q.FailuresForget(ctx, h.tx, ids)
	h.repaired = make(map[int64]string, len(gone))
	for _, g := range gone {
		h.repaired[g.MessageID] = g.Route
	}
	return err
}

func (h *rehoming) move(ctx context.Context, ids []int64, jobs []forwardJob, done []Repaired) error {
	made, err := h.s.insertJobs(ctx, h.tx, jobs)
	if err != nil || len(made) == 0 {
		return err
	}
	now := make(map[int64]int64, len(ids))
	for i, id := range ids {
		now[id] = made[i]
	}
	for i := range done {
		done[i].JobID = cmp.Or(now[done[i].MessageID], done[i].JobID)
	}
	return h.s.q.DeliveriesMoveJob(ctx, h.tx, ids, made)
}

// cancelledDetail is the detail of a message whose job was cancelled.
const cancelledDetail = "its job was cancelled"

// FailCancelled fails messages whose jobs were cancelled, reason cancelled, as far as that is still so, and returns which.
// It settles them like any outcome, so that whatever belongs to a failure happens.
func (s *Store) FailCancelled(ctx context.Context, orphans []Orphan, forwarder string) ([]Repaired, error) {
	own, err := s.ownJobs(ctx, orphans)
	if err != nil {
		return nil, err
	}
	brief, err := s.brief(ctx, orphans)
	if err != nil {
		return nil, err
	}
	var outcomes []Outcome
	for _, o := range orphans {
		m, ok := brief[o.MessageID]
		if !ok {
			continue // purged
		}
		outcomes = append(outcomes, Outcome{
			MessageID: o.MessageID, JobID: o.JobID, Route: m.Route, Key: m.MessageKey, Bytes: m.PayloadBytes, Own: own[o.JobID],
			Status: message.StatusFailed, Reason: message.Cancelled, Detail: cancelledDetail, Forwarder: forwarder, ifCancelled: true,
		})
	}
	settled, err := s.Settle(ctx, outcomes)
	if err != nil {
		return nil, err
	}
	var done []Repaired
	for i, o := range outcomes {
		if settled[i].Passed {
			done = append(done, Repaired{MessageID: o.MessageID, JobID: settled[i].JobID, Route: o.Route, Key: o.Key, Finding: FoundCancelled})
		}
	}
	return done, nil
}

func (s *Store) brief(ctx context.Context, orphans []Orphan) (map[int64]storedb.MessagesBriefRow, error) {
	ids := make([]int64, len(orphans))
	for i, o := range orphans {
		ids[i] = o.MessageID
	}
	rows, err := s.q.MessagesBrief(ctx, planned{s.pool}, ids)
	if err != nil {
		return nil, wrap(opOrphans("reading", len(ids)), err)
	}
	out := make(map[int64]storedb.MessagesBriefRow, len(rows))
	for _, r := range rows {
		out[r.ID] = r
	}
	return out, nil
}

// ownJobs says which of the orphans' jobs are of a single message.
func (s *Store) ownJobs(ctx context.Context, orphans []Orphan) (map[int64]bool, error) {
	var ids []int64
	for _, o := range orphans {
		ids = append(ids, o.JobID)
	}
	slices.Sort(ids)
	own, err := s.q.JobsOwn(ctx, planned{s.pool}, slices.Compact(ids))
	if err != nil {
		return nil, wrap("reading the jobs of cancelled messages", err)
	}
	out := make(map[int64]bool, len(own))
	for _, id := range own {
		out[id] = true
	}
	return out, nil
}

// unlessRevived leaves out of a settling what may stand only while its job is cancelled, and is not any more. The others'
// jobs stay locked until the commit, so that an operator who retries one waits, and then finds the message failed, which
// makes the retry a replay. Without that, the retried job could deliver the message and find it failed when it settles.
func (st *settling) unlessRevived(ctx context.Context, tx pgx.Tx) (*settling, error) {
	var jobs []int64
	for _, i := range st.todo {
		if o := &st.outcomes[i]; o.ifCancelled {
			jobs = append(jobs, o.JobID)
		}
	}
	if len(jobs) == 0 {
		return st, nil
	}
	cancelled, err := st.s.q.JobsLockCancelled(ctx, tx, jobs)
	if err != nil {
		return nil, err
	}
	still := make(map[int64]bool, len(cancelled))
	for _, id := range cancelled {
		still[id] = true
	}
	left := *st
	left.todo = slices.DeleteFunc(slices.Clone(st.todo), func(i int) bool {
		return st.outcomes[i].ifCancelled && !still[st.outcomes[i].JobID]
	})
	return &left, nil
}

// tellCancelled writes into the messages' own jobs, which have ended, why they failed.
func (st *settling) tellCancelled(ctx context.Context, tx pgx.Tx, passed []int) error {
	var jobs []int64
	for _, i := range passed {
		if o := &st.outcomes[i]; o.ifCancelled && o.Own {
			jobs = append(jobs, o.JobID)
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	return st.s.q.JobsTell(ctx, tx, OwnErrorPrefix+message.Cancelled.String()+": "+cancelledDetail, jobs)
}

// OwnErrorPrefix begins every error of a job that Ferry itself gave it.
const OwnErrorPrefix = "ferry: "
