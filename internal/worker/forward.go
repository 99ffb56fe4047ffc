package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/riverqueue/river"

	"github.com/ferry-forward/ferry/internal/forward"
	"github.com/ferry-forward/ferry/internal/forward/breaker"
	"github.com/ferry-forward/ferry/internal/groupcommit"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/riverjobs"
)

// Deliverer makes one attempt at one message: decode, map, send, judge.
type Deliverer interface {
	Deliver(ctx context.Context, m *message.Message, d *message.Delivery) forward.Result
	// Expired says whether the message is too old to be sent: Deliver then makes no request.
	Expired(d *message.Delivery) bool
}

// Store is what the worker needs of the database.
type Store interface {
	Load(ctx context.Context, ids []int64) (*store.Loaded, error)
	Settle(ctx context.Context, outcomes []store.Outcome) ([]store.Settled, error)
	Split(ctx context.Context, jobID int64) (int, error)
	Reopen(ctx context.Context, messageID, jobID int64, forwarder string) (due time.Time, err error)
	RunningBefore(ctx context.Context, runners []string, rescuedAt time.Time) (time.Duration, error)
}

// Metrics takes what the worker counts.
type Metrics interface {
	Attempt(route string, v message.Verdict, code string)
	Request(route string, d time.Duration)
	EndToEnd(route string, d time.Duration)
	InFlight(route string, delta int)
	Slots(route string, used, total int)
}

// Lane is one route and what delivers its messages.
type Lane struct {
	Route     *route.Route
	Deliverer Deliverer
	Breaker   *breaker.Breaker // which the deliverer tells its results
	Limit     Limit            // nil: none
}

// Config is what a Forward worker needs. All fields are required.
type Config struct {
	Lanes       []Lane
	Store       Store
	Metrics     Metrics
	Logger      *slog.Logger
	JobTime     time.Duration // how long one run of a job may take
	RescueAfter time.Duration // when River's leader takes a running job for dead; longer than JobTime
	Forwarder   string        // id of this process, kept with each attempt; also the id of its River client
}

const (
	// settleBatch bounds how many outcomes one transaction settles.
	settleBatch = 1000
	// loadBatch bounds how many messages one statement loads.
	loadBatch = 500
	// comeBack is how long a job rests that could not get a permit or its messages.
	comeBack = time.Second
	// maxCrashes is how many times a message's own job may be rescued without an outcome before the message is given up.
	maxCrashes = 3
)

// forwardArgs are the job's arguments, and what its run wants NextRetry to answer.
type forwardArgs struct {
	riverjobs.ForwardArgs

	next time.Time
}

// Forward is the River worker that delivers messages.
type Forward struct {
	river.WorkerDefaults[forwardArgs]

	cfg     Config
	lanes   map[string]*lane
	loads   *groupcommit.Group[[]int64, *store.Loaded]
	settles *groupcommit.Group[store.Outcome, store.Settled]

	draining context.Context //nolint:containedctx // ends when Drain is called: a process-wide signal
	drain    context.CancelFunc
	alive    context.Context //nolint:containedctx // ends when Close is called: outcomes are retried until then
	close    context.CancelFunc
}

// NewForward returns the worker for the lanes of cfg.
func NewForward(cfg Config) *Forward {
	w := &Forward{cfg: cfg, lanes: make(map[string]*lane, len(cfg.Lanes))}
	for _, l := range cfg.Lanes {
		w.lanes[l.Route.Name] = newLane(l, cfg.Metrics)
	}
	w.loads = groupcommit.New(groupcommit.Config[[]int64, *store.Loaded]{
		Run: w.load, Max: loadBatch, Parallel: 2, Weigh: func(ids []int64) int { return len(ids) },
	})
	w.settles = groupcommit.New(groupcommit.Config[store.Outcome, store.Settled]{Run: cfg.Store.Settle, Max: settleBatch})
	w.draining, w.drain = context.WithCancel(context.Background())
	w.alive, w.close = context.WithCancel(context.Background())
	return w
}

// Register adds the worker to River's bundle.
func (w *Forward) Register(bundle *river.Workers) error {
	if err := river.AddWorkerSafely(bundle, w); err != nil {
		return fmt.Errorf("registering the forward worker: %w", err)
	}
	return nil
}

// Drain has messages that wait for a permit given back at once. Requests in flight go on.
func (w *Forward) Drain() { w.drain() }

// Close ends the retrying of outcomes that the database does not take. Idempotent.
func (w *Forward) Close() {
	w.drain()
	w.close()
	for _, l := range w.lanes {
		l.gate.close()
	}
}

// Queues returns River's queues: one for each route, with as many jobs as keep its permits busy. A group holds up to
// job_size messages, so that about four times the concurrency is in memory; never fewer jobs than permits, since a
// retried message is a job of its own.
func (w *Forward) Queues() map[string]river.QueueConfig {
	queues := make(map[string]river.QueueConfig, len(w.lanes))
	for name, l := range w.lanes {
		jobs := max(l.route.Concurrency, ahead*l.route.Concurrency/l.route.JobSize)
		queues[name] = river.QueueConfig{MaxWorkers: min(jobs, river.QueueNumWorkersMax)}
	}
	return queues
}

// Timeout is River's limit for one run.
func (w *Forward) Timeout(*river.Job[forwardArgs]) time.Duration { return w.cfg.JobTime }

// NextRetry is when a job that returned an error runs again: the time that its outcome was stored with, or soon for one
// that died. (A time in the past would make River take its own policy.)
func (w *Forward) NextRetry(job *river.Job[forwardArgs]) time.Time {
	if job.Args.next.IsZero() {
		return time.Now().Add(comeBack)
	}
	if soon := time.Now().Add(50 * time.Millisecond); job.Args.next.Before(soon) {
		return soon
	}
	return job.Args.next
}

// Work runs one job.
func (w *Forward) Work(ctx context.Context, job *river.Job[forwardArgs]) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = crashError(p)
			w.cfg.Logger.Error("a delivery panicked", "job_id", job.ID, "route", job.Args.Route, "error", err)
		}
	}()
	l := w.lanes[job.Args.Route]
	if l == nil {
		// The queue is another route's: somebody moved the job by hand. It is left alone for a forwarder that knows the route.
		w.cfg.Logger.Warn("a job of a route that is not worked here", "job_id", job.ID, "route", job.Args.Route)
		return river.JobSnooze(time.Minute)
	}
	r := &run{w: w, lane: l, job: job}
	r.setTime(time.Now())
	if err := r.toldEarlier(ctx); err != nil {
		return err
	}
	if !job.Args.Own && foreignErrors(job.Errors, time.Time{}) > 0 {
		return r.split(ctx)
	}
	return r.work(ctx)
}

func (w *Forward) load(ctx context.Context, groups [][]int64) ([]*store.Loaded, error) {
	var ids []int64
	for _, g := range groups {
		ids = append(ids, g...)
	}
	loaded, err := w.cfg.Store.Load(ctx, ids)
	if err != nil {
		return nil, err
	}
	out := make([]*store.Loaded, len(groups))
	for i := range out {
		out[i] = loaded
	}
	return out, nil
}

// settle writes an outcome, however long the database is away: a request was sent, and until its outcome stands in the
// database the message may be sent again. It gives up only when the process ends.
func (w *Forward) settle(o store.Outcome) (store.Settled, error) {
	const first, longest = 50 * time.Millisecond, 2 * time.Second
	stripped := false
	for wait := first; ; wait = min(2*wait, longest) {
		s, err := w.settles.Do(w.alive, o)
		if err == nil && s.Err != nil && !stripped {
			// The database refused this one row. What the destination said is worth less than the outcome.
			w.cfg.Logger.Error("storing an outcome without its texts: the database refused it with them",
				"message_id", o.MessageID, "job_id", o.JobID, "route", o.Route, "error", s.Err)
			o, stripped = withoutTexts(o), true
			continue
		}
		if err == nil {
			err = s.Err
		}
		if err == nil {
			return s, nil
		}
		w.cfg.Logger.Error("an outcome is not stored yet, trying again", "message_id", o.MessageID, "job_id", o.JobID,
			"route", o.Route, "error", err)
		select {
		case <-w.alive.Done():
			return store.Settled{}, fmt.Errorf("storing the outcome of message %d: the process ended first: %w", o.MessageID, err)
		case <-time.After(wait):
		}
	}
}

func withoutTexts(o store.Outcome) store.Outcome {
	o.Detail = ""
	if o.Attempt != nil {
		a := *o.Attempt
		a.ErrorCode, a.Error, a.Response, a.Detail = "", a.ErrorClass.String(), "", ""
		o.Attempt = &a
	}
	return o
}
