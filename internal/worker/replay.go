package worker

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
)

// What an operator does to a job in River UI, as far as the job's own run has to do with it. The table of all of it is in
// docs/operations.md; what is left to be done without a run is reconcile's.

// askedFor says whether a job of a failed message runs because somebody retried it, and not because its last run died
// before River knew that the message had failed:
//
//	run 1 settles the message: failed. Its process dies; River's rescue adds an error of its own and starts run 2,
//	which must not send, but tell River again.
//
//	run 1 settles the message and River ends the job, with Ferry's error, in one statement. Nothing but a retry by hand
//	brings the job back.
//
// A job that reconcile found cancelled has been given an error of Ferry's own too. A job that was cancelled while it ran
// ends with River's error about that.
func askedFor(errs []rivertype.AttemptError) bool {
	return len(errs) > 0 && !foreign(errs[len(errs)-1])
}

// reopen makes a failed message pending again whose job an operator has retried, and returns it as it is to be sent. It
// returns no message, but what to tell River, when there was no such wish, or the message could not be opened.
func (r *run) reopen(ctx context.Context, item *store.Item) (*store.Item, error) {
	if !askedFor(r.job.Errors) {
		return nil, failedResult(r.job.JobRow, item.Reason, item.Detail)
	}
	due, err := r.w.cfg.Store.Reopen(ctx, item.ID, r.job.ID, r.w.cfg.Forwarder)
	if err != nil {
		r.w.cfg.Logger.Error("replaying a message, trying again", "message_id", item.ID, "job_id", r.job.ID,
			"route", item.Route, "error", err)
		return nil, r.giveBack()
	}
	if due.IsZero() {
		return nil, r.giveBack() // somebody else changed it meanwhile, or the answer to a commit got lost: look again
	}
	r.w.cfg.Logger.Info("message replayed: its job was retried", "message_id", item.ID, "message_key", item.Key,
		"route", item.Route, "job_id", r.job.ID, "was", item.Reason)
	again := *item
	again.Status, again.Reason, again.Detail = message.StatusPending, "", ""
	again.Attempts, again.DueFrom, again.NextAttemptAt = 0, due, time.Time{}
	return &again, nil
}

// restedKey is where a job's metadata say until when (Unix microseconds) a run has made it rest.
const restedKey = "ferry_rested"

// rest returns what to tell River when the message has to wait on, although its job runs: its last run died between
// storing its outcome and telling River, and the wait that was stored with the outcome still counts. That is told once. If
// the job runs again before that time is over, an operator has retried it, and it is sent now.
func (r *run) rest(ctx context.Context, item *store.Item, now time.Time) error {
	rest := item.NextAttemptAt.Sub(now)
	if rest <= 0 || foreignErrors(r.job.Errors, time.Time{}) == 0 {
		return nil
	}
	var rested struct {
		Until int64 `json:"ferry_rested"`
	}
	if err := json.Unmarshal(r.job.Metadata, &rested); err == nil && rested.Until == item.NextAttemptAt.UnixMicro() {
		return nil
	}
	if err := river.MetadataSet(ctx, restedKey, item.NextAttemptAt.UnixMicro()); err != nil {
		r.w.cfg.Logger.Warn("noting that a job rests", "job_id", r.job.ID, "error", err)
	}
	return river.JobSnooze(rest)
}

// toldEarlier has a job whose last run was rescued wait until that run must be over, if the leader that rescued it may have
// done so too early: see store.RunningBefore. It returns what to tell River, nil to go on at once.
func (r *run) toldEarlier(ctx context.Context) error {
	last := len(r.job.Errors) - 1
	if foreignErrors(r.job.Errors, time.Time{}) == 0 || len(r.job.AttemptedBy) < 2 {
		return nil
	}
	before := r.job.AttemptedBy[:len(r.job.AttemptedBy)-1]
	rest, err := r.w.cfg.Store.RunningBefore(ctx, before, r.job.Errors[last].At)
	if err != nil {
		r.w.cfg.Logger.Warn("reading how long a job's last run may go on, trying again", "job_id", r.job.ID, "error", err)
		return r.giveBack()
	}
	if rest == 0 {
		return nil
	}
	r.w.cfg.Logger.Info("a job's last run may go on: the leader that took it for dead has an older route file", "job_id",
		r.job.ID, "route", r.lane.route.Name, "wait", rest.Round(time.Millisecond))
	return river.JobSnooze(rest)
}

// sending returns the context of the run's requests. It ends with the run's, but for one case: when an operator cancels
// the job, requests in flight go on to their end, which http.timeout bounds. What the destination did with them would
// otherwise be known to nobody. What was not sent is not sent any more. When River is cut off they end too.
func (r *run) sending(ctx context.Context) (context.Context, func()) {
	send, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	detachRun := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !errors.Is(cause, rivertype.ErrJobCancelledRemotely) {
			cancel(cause)
		}
	})
	detachProcess := context.AfterFunc(r.w.alive, func() { cancel(context.Cause(r.w.alive)) })
	return send, func() { detachRun(); detachProcess(); cancel(nil) }
}
