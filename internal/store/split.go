package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Split gives each pending message that a group's job still owns a job of its own, to run now, and returns how many.
// The worker does so with a group that was rescued: a message that kills the process then does so alone.
//
// It may run beside another run of the same group: the rows are locked in order, and the one that comes second finds
// them owned by their own jobs.
func (s *Store) Split(ctx context.Context, jobID int64) (int, error) {
	n := 0
	err := s.inTx(ctx, fmt.Sprintf("splitting job %d", jobID), func(tx pgx.Tx) error {
		rows, err := s.q.GroupPending(ctx, tx, jobID)
		if err != nil {
			return err
		}
		n = len(rows)
		jobs, ids := make([]forwardJob, n), make([]int64, n)
		for i, r := range rows {
			ids[i] = r.MessageID
			jobs[i] = ownJob(r.MessageID, r.Route, r.MessageKey, r.PayloadBytes, time.Time{})
		}
		if n == 0 {
			return nil
		}
		jobIDs, err := s.insertJobs(ctx, tx, jobs)
		if err != nil {
			return err
		}
		return s.q.DeliveriesMoveJob(ctx, tx, ids, jobIDs)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
