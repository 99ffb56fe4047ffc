package worker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/riverqueue/river"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/riverjobs"
)

// Purger is what retention needs of the database.
type Purger interface {
	PurgeDelivered(ctx context.Context, keep time.Duration, routes []string) (*store.Purge, error)
	PurgeFailed(ctx context.Context, keep time.Duration, route string, deadLetters bool) (*store.Purge, error)
	DropAttempts(ctx context.Context, keep time.Duration) (store.DroppedAttempts, error)
}

// RetentionConfig is what a Retention worker needs. All fields are required.
type RetentionConfig struct {
	Store  Purger
	Logger *slog.Logger
	Purged func(route string, status message.Status, n int64) // counts messages that were purged
	Routes []*route.Route                                     // all routes of the file; messages of others are left alone
}

const (
	// retentionEvery is the time between two runs.
	retentionEvery = time.Minute
	// retentionTime is what a run may take; see reconcileTime.
	retentionTime = 18 * time.Second
	// purgeTime is how long a run goes on purging. What is left over is the next run's.
	purgeTime = 13 * time.Second
)

// Retention is the River worker that deletes settled messages past the retention of their route, and attempts past the
// longest one. Messages of a route are purged by every forwarder that has it in its file, whatever routes it works. How it
// keeps out of the way of what is being delivered: see store.Purge.
type Retention struct {
	river.WorkerDefaults[riverjobs.RetentionArgs]

	cfg RetentionConfig
}

// NewRetention returns the worker.
func NewRetention(cfg RetentionConfig) *Retention { return &Retention{cfg: cfg} }

// Register adds the worker to River's bundle.
func (w *Retention) Register(bundle *river.Workers) error {
	if err := river.AddWorkerSafely(bundle, w); err != nil {
		return fmt.Errorf("registering the retention worker: %w", err)
	}
	return nil
}

// Periodic returns River's periodic job, which its leader inserts: when it begins to lead, and then every minute.
func (w *Retention) Periodic() *river.PeriodicJob {
	return river.NewPeriodicJob(river.PeriodicInterval(retentionEvery), func() (river.JobArgs, *river.InsertOpts) {
		return riverjobs.RetentionArgs{}, riverjobs.MaintenanceOpts()
	}, &river.PeriodicJobOpts{RunOnStart: true})
}

// Timeout is River's limit for one run.
func (w *Retention) Timeout(*river.Job[riverjobs.RetentionArgs]) time.Duration { return retentionTime }

// Work is one run. An error is the database's, which others watch: it is logged, and the next run goes on where this one
// stopped.
func (w *Retention) Work(ctx context.Context, job *river.Job[riverjobs.RetentionArgs]) error {
	run := &retaining{w: w, start: time.Now(), purged: map[message.Status]map[string]int64{}, waiting: map[string]int64{}}
	err := run.all(ctx)
	run.tell()
	if err != nil {
		w.cfg.Logger.Warn("retention did not come to its end; the next run goes on", "job_id", job.ID, "error", err)
		return nil
	}
	w.cfg.Logger.Debug("retention is done", "job_id", job.ID, "duration", time.Since(run.start))
	return nil
}

// retaining is one run.
type retaining struct {
	w     *Retention
	start time.Time

	purged  map[message.Status]map[string]int64 // by route
	waiting map[string]int64                    // failed messages that wait for their dead letters, by route
	left    bool                                // there was more to do than time
	dropped store.DroppedAttempts
}

func (r *retaining) all(ctx context.Context) error {
	begins := r.begins()
	for i, b := range begins {
		// Each has its share of the time that is left, so that one with much to do is in nobody's way.
		share := (purgeTime - time.Since(r.start)) / time.Duration(len(begins)-i)
		if err := r.purge(ctx, b, share); err != nil {
			return err
		}
	}
	var err error
	r.dropped, err = r.w.cfg.Store.DropAttempts(ctx, r.keepAttempts())
	return err //nolint:wrapcheck // says what was being done
}

// begin begins the purge of messages of some routes.
type begin struct {
	routes []string
	purge  func(context.Context) (*store.Purge, error)
}

// begins are the purges of a run: of delivered messages one for each retention, of failed ones one for each route.
func (r *retaining) begins() []begin {
	byKeep := map[time.Duration][]string{}
	for _, rt := range r.w.cfg.Routes {
		byKeep[rt.Retention.Delivered] = append(byKeep[rt.Retention.Delivered], rt.Name)
	}
	var out []begin
	for _, keep := range slices.Sorted(maps.Keys(byKeep)) {
		out = append(out, begin{byKeep[keep], func(ctx context.Context) (*store.Purge, error) {
			return r.w.cfg.Store.PurgeDelivered(ctx, keep, byKeep[keep])
		}})
	}
	for _, rt := range r.w.cfg.Routes {
		out = append(out, begin{[]string{rt.Name}, func(ctx context.Context) (*store.Purge, error) {
			return r.w.cfg.Store.PurgeFailed(ctx, rt.Retention.Failed, rt.Name, rt.DeadLetter.Topic != "")
		}})
	}
	return out
}

func (r *retaining) purge(ctx context.Context, b begin, limit time.Duration) error {
	begun := time.Now()
	p, err := b.purge(ctx)
	if err != nil {
		return err
	}
	defer r.count(b, p)
	for more := true; more; {
		if time.Since(begun) >= limit {
			r.left = true
			return nil
		}
		if more, err = p.Next(ctx); err != nil {
			return err //nolint:wrapcheck // says what was being done
		}
	}
	return nil
}

func (r *retaining) count(b begin, p *store.Purge) {
	for name, n := range p.Purged {
		if r.purged[p.Status] == nil {
			r.purged[p.Status] = map[string]int64{}
		}
		r.purged[p.Status][name] += n
		r.w.cfg.Purged(name, p.Status, n)
	}
	if p.Waiting > 0 {
		r.waiting[b.routes[0]] = p.Waiting
	}
}

// keepAttempts is how long attempts are kept: as long as a message of any route can be there after one of them.
func (r *retaining) keepAttempts() time.Duration {
	var retention, age time.Duration
	for _, rt := range r.w.cfg.Routes {
		retention = max(retention, rt.Retention.Delivered, rt.Retention.Failed)
		age = max(age, rt.Retry.MaxAge)
	}
	return retention + age
}

func (r *retaining) tell() {
	log := r.w.cfg.Logger
	if len(r.purged) > 0 {
		log.Info("messages past their retention are purged", "delivered", r.purged[message.StatusDelivered],
			"failed", r.purged[message.StatusFailed], "more", r.left, "duration", time.Since(r.start))
	}
	for _, name := range slices.Sorted(maps.Keys(r.waiting)) {
		log.Warn("failed messages past their retention are kept until their dead letters are written; those that have no job "+
			"for it, since they failed before the route had dead_letter or the job was deleted, get one when they are replayed",
			"route", name, "messages", r.waiting[name])
	}
	if len(r.dropped.Days) > 0 || r.dropped.Rows > 0 {
		log.Info("attempts past the longest retention are dropped", "days", r.dropped.Days, "rows", r.dropped.Rows)
	}
	if r.dropped.Busy {
		log.Debug("attempts are in use; the partition is dropped by a later run")
	}
}
