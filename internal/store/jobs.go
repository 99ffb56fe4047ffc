package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/ferry-forward/ferry/riverjobs"
)

// maxGroupBytes bounds the payloads of a group, so that a job's memory is bounded whatever job_size says.
const maxGroupBytes = 1 << 20

var errJobs = errors.New("other jobs came back than were inserted")

// forwardJob is a forward job to insert. The zero time means now.
type forwardJob struct {
	args riverjobs.ForwardArgs
	at   time.Time
}

// insertJobs inserts jobs in the transaction and returns their ids in the same order.
func (s *Store) insertJobs(ctx context.Context, tx pgx.Tx, jobs []forwardJob) ([]int64, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	params := make([]river.InsertManyParams, len(jobs))
	for i, j := range jobs {
		opts := riverjobs.ForwardOpts(j.args.Route)
		opts.ScheduledAt = j.at
		params[i] = river.InsertManyParams{Args: j.args, InsertOpts: opts}
	}
	results, err := s.jobs.InsertManyTx(ctx, tx, params)
	if err != nil {
		return nil, fmt.Errorf("inserting jobs: %w", err)
	}
	if len(results) != len(jobs) {
		return nil, fmt.Errorf("inserting jobs: %w: %d for %d", errJobs, len(results), len(jobs))
	}
	ids := make([]int64, len(jobs))
	for i, r := range results {
		// The fence hangs on which job owns which message, so the order is not taken on trust.
		var got riverjobs.ForwardArgs
		if err := json.Unmarshal(r.Job.EncodedArgs, &got); err != nil {
			return nil, fmt.Errorf("inserting jobs: reading job %d: %w", r.Job.ID, err)
		}
		if !slices.Equal(got.IDs, jobs[i].args.IDs) {
			return nil, fmt.Errorf("inserting jobs: %w: job %d", errJobs, r.Job.ID)
		}
		ids[i] = r.Job.ID
	}
	return ids, nil
}

// newMessage is a message that was just inserted and waits for its job.
type newMessage struct {
	id    int64
	route string
	bytes int64
}

// group makes the jobs of new messages: by route, in order, of at most job_size messages and maxGroupBytes, at least
// one. owner[i] is the index of the job of news[i].
func (s *Store) group(news []newMessage) (jobs []forwardJob, owner []int) {
	owner = make([]int, len(news))
	open := map[string]int{} // route → its job that still takes messages
	for i, m := range news {
		j, ok := open[m.route]
		if ok {
			a := &jobs[j].args
			ok = len(a.IDs) < max(1, s.cfg.JobSizes[m.route]) && a.Bytes+m.bytes <= maxGroupBytes
		}
		if !ok {
			j = len(jobs)
			jobs = append(jobs, forwardJob{args: riverjobs.ForwardArgs{Route: m.route}})
			open[m.route] = j
		}
		a := &jobs[j].args
		a.IDs = append(a.IDs, m.id)
		a.Bytes += m.bytes
		owner[i] = j
	}
	return jobs, owner
}
