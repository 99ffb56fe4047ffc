package worker

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"

	"github.com/ferry-forward/ferry/internal/forward"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/store"
)

var errNoTurn = errors.New("no turn in time for a request to end within the job's time")

// run is one run of one job.
type run struct {
	w    *Forward
	lane *lane
	job  *river.Job[forwardArgs]

	sendBy time.Time // no request starts after this
	late   time.Time // after this another run may have replaced this one

	kept     atomic.Int64 // messages that stay in this job: not sent, or sent without a stored outcome
	panicked atomic.Pointer[error]
}

// setTime derives the run's limits from when River fetched the job, in local time. The limits only ever come nearer:
//
//	the database says what time it is, with the messages
//	the process is frozen before it reads that, for longer than a job may run; the job is rescued and worked elsewhere
//	it runs on: by that clock its run would be young
func (r *run) setTime(fetched time.Time) {
	end := fetched.Add(r.w.cfg.JobTime)
	if late := end.Add((r.w.cfg.RescueAfter - r.w.cfg.JobTime) / 2); !r.late.IsZero() && late.After(r.late) {
		return
	}
	r.sendBy = end.Add(-r.lane.route.HTTP.Timeout - route.SendMargin)
	r.late = end.Add((r.w.cfg.RescueAfter - r.w.cfg.JobTime) / 2)
}

// split replaces a group whose last run died: each message that it still owns gets a job of its own, before anything is
// sent, so that a message that takes the process down does it alone.
func (r *run) split(ctx context.Context) error {
	n, err := r.w.cfg.Store.Split(ctx, r.job.ID)
	if err != nil {
		r.w.cfg.Logger.Warn("splitting a group whose run died, trying again", "job_id", r.job.ID, "error", err)
		return river.JobSnooze(comeBack)
	}
	r.w.cfg.Logger.Warn("a group's run died; its messages go on one by one", "job_id", r.job.ID, "route",
		r.lane.route.Name, "messages", n)
	return nil
}

func (r *run) work(ctx context.Context) error {
	wait, stop := r.untilSendBy(ctx)
	defer stop()
	release, err := r.lane.admit(wait, len(r.job.Args.IDs), r.job.Args.Bytes)
	if err != nil {
		return r.giveBack()
	}
	defer release()
	loaded, err := r.w.loads.Do(wait, r.job.Args.IDs)
	if err != nil {
		if wait.Err() == nil {
			r.w.cfg.Logger.Error("loading a job's messages, trying again", "job_id", r.job.ID, "route", r.lane.route.Name, "error", err)
		}
		return r.giveBack()
	}
	if r.job.AttemptedAt != nil {
		// The age of this run by the database's clock: it includes the time in which this process may have been frozen.
		r.setTime(time.Now().Add(-loaded.Now.Sub(*r.job.AttemptedAt)))
		if time.Now().After(r.late) {
			return noResult{}
		}
	}
	if r.job.Args.Own {
		return r.own(ctx, loaded)
	}
	return r.group(ctx, loaded)
}

// untilSendBy bounds waiting: by the last moment to send, or somewhat earlier, and by the process stopping. Earlier, so
// that jobs which were fetched together do not leave a slow limit together, and nobody waits when its next permit is due.
func (r *run) untilSendBy(ctx context.Context) (context.Context, func()) {
	early := time.Duration(rand.Float64() / 4 * float64(time.Until(r.sendBy))) //nolint:gosec // no secret
	wait, cancel := context.WithDeadlineCause(ctx, r.sendBy.Add(-max(0, early)), errNoTurn)
	detach := context.AfterFunc(r.w.draining, cancel)
	return wait, func() { detach(); cancel() }
}

// giveBack returns the job to its queue: at once when the process stops, so that another one takes it, else after a rest.
func (r *run) giveBack() error {
	if time.Now().After(r.late) {
		return noResult{}
	}
	if r.w.draining.Err() != nil {
		return river.JobSnooze(0)
	}
	return river.JobSnooze(comeBack)
}

// group delivers the messages of a group that it still owns, each in a goroutine of its own, started in order as their
// turns come. When one waited in vain, the others do not try: they would wait as long. What is too old to be sent needs
// no turn, so that it fails also while nothing is sent.
func (r *run) group(ctx context.Context, loaded *store.Loaded) error {
	wait, stop := r.untilSendBy(ctx)
	defer stop()
	send, sent := r.sending(ctx)
	defer sent()
	var sending sync.WaitGroup
	inVain := false
	for i, id := range r.job.Args.IDs {
		item := loaded.Items[id]
		if !r.owns(item) || item.Status != message.StatusPending {
			continue
		}
		expired := r.lane.deliverer.Expired(&item.Delivery)
		if !expired {
			inVain = inVain || r.lane.gate.enter(wait, item, len(r.job.Args.IDs)-i-1) != nil
			if inVain {
				r.kept.Add(1)
				continue
			}
		}
		sending.Add(1)
		go func() {
			defer sending.Done()
			if !expired {
				defer r.lane.gate.leave(item.ID)
			}
			if _, settled := r.deliver(send, item); settled == nil {
				r.kept.Add(1)
			}
		}()
	}
	sending.Wait()
	switch {
	case time.Now().After(r.late):
		return noResult{}
	case r.panicked.Load() != nil:
		return *r.panicked.Load()
	case r.kept.Load() > 0:
		return r.giveBack()
	}
	return nil
}

func (r *run) owns(item *store.Item) bool { return item != nil && item.JobID == r.job.ID }

// own delivers the one message of its own job.
func (r *run) own(ctx context.Context, loaded *store.Loaded) error {
	item := loaded.Items[r.job.Args.IDs[0]]
	if !r.owns(item) || item.Status == message.StatusDelivered {
		return nil // settled, purged, or another job's by now
	}
	if item.Status == message.StatusFailed {
		var err error
		if item, err = r.reopen(ctx, item); item == nil {
			return err
		}
	}
	crashes := foreignErrors(r.job.Errors, item.NextAttemptAt)
	if crashes >= maxCrashes {
		return r.crashed(item, crashes)
	}
	if err := r.rest(ctx, item, loaded.Now); err != nil {
		return err
	}
	send, sent := r.sending(ctx)
	defer sent()
	mine := *item // the loaded one may be another run's too
	mine.OwnSince = troubleSince(item, r.job.CreatedAt)
	if !r.lane.deliverer.Expired(&mine.Delivery) {
		wait, stop := r.untilSendBy(ctx)
		defer stop()
		if err := r.lane.gate.enter(wait, &mine, 0); err != nil {
			return r.giveBack()
		}
		defer r.lane.gate.leave(mine.ID)
	}
	res, settled := r.deliver(send, &mine)
	return r.ownResult(res, settled)
}

// troubleSince is about when the message's trouble began: its first fault gave it its own job, unless a rescue did before
// anything was sent. A replay begins anew.
func troubleSince(item *store.Item, jobCreated time.Time) time.Time {
	switch {
	case item.Requests == 0:
		return time.Time{}
	case item.DueFrom.After(jobCreated):
		return item.DueFrom
	}
	return jobCreated
}

func (r *run) ownResult(res forward.Result, settled *store.Settled) error {
	switch {
	case time.Now().After(r.late):
		return noResult{}
	case r.panicked.Load() != nil:
		return *r.panicked.Load()
	case settled == nil:
		return r.giveBack()
	case !settled.Passed:
		return nil
	}
	switch res.Status {
	case message.StatusDelivered:
		return nil
	case message.StatusFailed:
		return failedResult(r.job.JobRow, res.Reason, res.Detail)
	case message.StatusPending:
	}
	if res.Counted && res.Attempt != nil {
		r.job.Args.next = res.NextAttempt
		return attemptError(res.Attempt)
	}
	return river.JobSnooze(max(0, time.Until(res.NextAttempt)))
}

// crashed fails a message whose own job was rescued again and again without an outcome.
func (r *run) crashed(item *store.Item, crashes int) error {
	detail := "its process died " + strconv.Itoa(crashes) + " times while it was being sent"
	res := forward.Result{Status: message.StatusFailed, Reason: message.Crashed, Detail: detail}
	s, err := r.w.settle(r.outcome(item, res))
	if err != nil {
		return r.giveBack()
	}
	r.w.cfg.Logger.Warn("message failed", "message_id", item.ID, "message_key", item.Key, "route", item.Route,
		"reason", res.Reason, "detail", detail)
	return r.ownResult(res, &s)
}

// deliver makes one attempt, for which the message has its turn, and stores its outcome. It returns no Settled when the
// message stays in this job: the request was aborted by the process stopping, or its outcome could not be stored.
//
// The turn is held until the outcome is stored. What may be sent twice after a crash is what was sent and not stored;
// so that is never more than the route's concurrency, and while the database takes nothing, nothing more is sent.
func (r *run) deliver(ctx context.Context, item *store.Item) (res forward.Result, settled *store.Settled) {
	defer func() {
		if p := recover(); p != nil {
			err := crashError(p)
			r.panicked.Store(&err)
			r.w.cfg.Logger.Error("a delivery panicked", "message_id", item.ID, "message_key", item.Key,
				"route", item.Route, "job_id", r.job.ID, "error", err)
		}
	}()
	if time.Now().After(r.sendBy) && !r.lane.deliverer.Expired(&item.Delivery) {
		return forward.Result{Status: message.StatusPending, Aborted: true}, nil // the process was frozen since its turn came
	}
	res = r.lane.deliverer.Deliver(ctx, &item.Message, &item.Delivery)
	if res.Aborted {
		return res, nil
	}
	s, err := r.w.settle(r.outcome(item, res))
	if err != nil {
		r.w.cfg.Logger.Error("an outcome is lost, the message will be sent again", "message_id", item.ID,
			"message_key", item.Key, "route", item.Route, "job_id", r.job.ID, "error", err)
		return res, nil
	}
	r.tell(item, res, s)
	return res, &s
}

func (r *run) outcome(item *store.Item, res forward.Result) store.Outcome {
	return store.Outcome{
		MessageID: item.ID, JobID: r.job.ID, Route: item.Route, Key: item.Key, Bytes: int64(len(item.Value)),
		Own: r.job.Args.Own, Status: res.Status, Reason: res.Reason, Detail: res.Detail,
		NextAttemptAt: res.NextAttempt, Counted: res.Counted, Attempt: res.Attempt, Forwarder: r.w.cfg.Forwarder,
	}
}

// tell counts the attempt and writes its one log line.
func (r *run) tell(item *store.Item, res forward.Result, s store.Settled) {
	attrs := []slog.Attr{
		slog.String("route", item.Route), slog.Int64("message_id", item.ID), slog.String("message_key", item.Key),
		slog.Int64("job_id", r.job.ID), slog.String("status", res.Status.String()), slog.Int("request", item.Requests+1),
	}
	if a := res.Attempt; a != nil {
		r.count(item, a)
		attrs = append(attrs, slog.String("verdict", a.Verdict.String()), slog.Int("http_status", a.HTTPStatus),
			slog.Duration("duration", a.Duration), slog.Bool("counted", res.Counted))
		if a.Error != "" {
			attrs = append(attrs, slog.String("error", a.Error))
		}
		if a.ErrorCode != "" {
			attrs = append(attrs, slog.String("error_code", a.ErrorCode))
		}
	}
	if res.Detail != "" {
		attrs = append(attrs, slog.String("detail", res.Detail))
	}
	level, text := slog.LevelDebug, "message delivered"
	switch res.Status {
	case message.StatusDelivered:
	case message.StatusPending:
		level, text = slog.LevelInfo, "message not delivered yet"
		attrs = append(attrs, slog.Time("next_attempt_at", res.NextAttempt))
	case message.StatusFailed:
		level, text = slog.LevelWarn, "message failed"
		attrs = append(attrs, slog.String("reason", res.Reason.String()))
	}
	if !s.Passed {
		level, text = slog.LevelWarn, "an outcome came too late and changes nothing: the message is another job's"
	}
	r.w.cfg.Logger.LogAttrs(context.Background(), level, text, attrs...)
}

func (r *run) count(item *store.Item, a *message.Attempt) {
	m := r.w.cfg.Metrics
	code := a.ErrorClass.String()
	if a.HTTPStatus != 0 {
		code = strconv.Itoa(a.HTTPStatus)
	}
	m.Attempt(item.Route, a.Verdict, code)
	m.Request(item.Route, a.Duration)
	if a.Verdict == message.Delivered && !item.Timestamp.IsZero() {
		m.EndToEnd(item.Route, time.Since(item.Timestamp))
	}
}
