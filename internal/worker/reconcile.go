package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/riverqueue/river"

	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/riverjobs"
)

// Reconciler is what reconcile needs of the database.
type Reconciler interface {
	Look(ctx context.Context) (more bool, err error)
	CheckUnsettled(ctx context.Context, routes []string) (*store.Checked, error)
	CheckFailures(ctx context.Context, routes []string) (*store.Checked, error)
	Rehome(ctx context.Context, orphans []store.Orphan, forwarder string) ([]store.Repaired, error)
	FailCancelled(ctx context.Context, orphans []store.Orphan, forwarder string) ([]store.Repaired, error)
}

// ReconcileConfig is what a Reconcile worker needs. All fields are required.
type ReconcileConfig struct {
	Store      Reconciler
	Logger     *slog.Logger
	Reconciled func(n int) // counts messages that were taken up
	Routes     []string    // all routes of the file; messages of others are left alone
	Forwarder  string      // id of this process
}

const (
	// reconcileEvery is the time between two runs.
	reconcileEvery = time.Minute
	// reconcileTime is what a run may take. It is shorter than the shortest time after which a job is rescued (20 s and
	// twice the longest http.timeout), so that runs do not overlap. They may: it costs time, and breaks nothing.
	reconcileTime = 18 * time.Second
	// lookTime, failuresTime and checkTime are how long each part goes on with further batches. What is left over is the
	// next run's.
	lookTime     = 4 * time.Second
	failuresTime = 2 * time.Second
	checkTime    = 6 * time.Second
	// repairBatch bounds the messages of one repairing transaction.
	repairBatch = 500
	// reconcileTold is how many messages of each finding a run logs at info level; the others are logged at debug level.
	reconcileTold = 10
)

// Reconcile is the River worker that finds pending messages without a live job, each of which is a bug or the work of an
// operator, and gives them one, or fails them when their job was cancelled. A message is reconciled by every forwarder
// that has its route in its file, whatever routes it works.
//
// It reads no table whole: messages come into store's table unsettled when they are new and pending, and leave it when
// they are settled. See store.Look.
type Reconcile struct {
	river.WorkerDefaults[riverjobs.ReconcileArgs]

	cfg ReconcileConfig
}

// NewReconcile returns the worker.
func NewReconcile(cfg ReconcileConfig) *Reconcile { return &Reconcile{cfg: cfg} }

// Register adds the worker to River's bundle.
func (w *Reconcile) Register(bundle *river.Workers) error {
	if err := river.AddWorkerSafely(bundle, w); err != nil {
		return fmt.Errorf("registering the reconcile worker: %w", err)
	}
	return nil
}

// Periodic returns River's periodic job, which its leader inserts: when it begins to lead, and then every minute.
func (w *Reconcile) Periodic() *river.PeriodicJob {
	return river.NewPeriodicJob(river.PeriodicInterval(reconcileEvery), func() (river.JobArgs, *river.InsertOpts) {
		return riverjobs.ReconcileArgs{}, riverjobs.MaintenanceOpts()
	}, &river.PeriodicJobOpts{RunOnStart: true})
}

// Timeout is River's limit for one run.
func (w *Reconcile) Timeout(*river.Job[riverjobs.ReconcileArgs]) time.Duration { return reconcileTime }

// Work is one run. An error is the database's, which others watch: it is logged, and the next run goes on where this one
// stopped.
func (w *Reconcile) Work(ctx context.Context, job *river.Job[riverjobs.ReconcileArgs]) error {
	found := &findings{w: w, counts: map[store.Finding]int{}}
	start := time.Now()
	err := w.run(ctx, found)
	found.tell()
	if err != nil {
		w.cfg.Logger.Warn("reconcile did not come to its end; the next run goes on", "job_id", job.ID, "error", err)
		return nil
	}
	w.cfg.Logger.Debug("reconciled", "job_id", job.ID, "duration", time.Since(start))
	return nil
}

func (w *Reconcile) run(ctx context.Context, found *findings) error {
	// Failures before messages: a message that was repaired by SQL has a job that is cancelled or discarded, which alone
	// would say something else.
	if err := w.sweep(ctx, failuresTime, found, w.cfg.Store.CheckFailures); err != nil {
		return err
	}
	for begun, more := time.Now(), true; more && time.Since(begun) < lookTime; {
		var err error
		if more, err = w.cfg.Store.Look(ctx); err != nil {
			return err //nolint:wrapcheck // says what was being done
		}
	}
	return w.sweep(ctx, checkTime, found, w.cfg.Store.CheckUnsettled)
}

// sweep checks batch after batch, once around at the most, and repairs what each of them brought.
func (w *Reconcile) sweep(ctx context.Context, limit time.Duration, found *findings,
	check func(context.Context, []string) (*store.Checked, error),
) error {
	begun, first, around := time.Now(), int64(-1), false
	for time.Since(begun) < limit {
		c, err := check(ctx, w.cfg.Routes)
		if err != nil {
			return err
		}
		if first < 0 {
			first = c.From
		}
		if err := w.repair(ctx, c.Orphans, found); err != nil {
			return err
		}
		switch {
		case c.To == 0 && (around || first == 0), around && c.To >= first:
			return nil
		case c.To == 0:
			around = true
		}
	}
	return nil
}

func (w *Reconcile) repair(ctx context.Context, orphans []store.Orphan, found *findings) error {
	var cancelled, others []store.Orphan
	for _, o := range orphans {
		if o.Finding == store.FoundCancelled {
			cancelled = append(cancelled, o)
		} else {
			others = append(others, o)
		}
	}
	if err := inChunks(others, func(chunk []store.Orphan) ([]store.Repaired, error) {
		return w.cfg.Store.Rehome(ctx, chunk, w.cfg.Forwarder)
	}, found); err != nil {
		return err
	}
	return inChunks(cancelled, func(chunk []store.Orphan) ([]store.Repaired, error) {
		return w.cfg.Store.FailCancelled(ctx, chunk, w.cfg.Forwarder)
	}, found)
}

func inChunks(orphans []store.Orphan, repair func([]store.Orphan) ([]store.Repaired, error), found *findings) error {
	for len(orphans) > 0 {
		n := min(len(orphans), repairBatch)
		done, err := repair(orphans[:n])
		if err != nil {
			return err
		}
		found.add(done)
		orphans = orphans[n:]
	}
	return nil
}

// findings are what a run found: a warning for each kind, whatever the number.
type findings struct {
	w      *Reconcile
	counts map[store.Finding]int
}

func (f *findings) add(done []store.Repaired) {
	f.w.cfg.Reconciled(len(done))
	for _, d := range done {
		f.counts[d.Finding]++
		level := slog.LevelInfo
		if f.counts[d.Finding] > reconcileTold {
			level = slog.LevelDebug
		}
		f.w.cfg.Logger.Log(context.Background(), level, "message reconciled", "message_id", d.MessageID, "message_key", d.Key,
			"route", d.Route, "found", d.Finding, "job_id", d.JobID)
	}
}

func (f *findings) tell() {
	for _, finding := range store.Findings() {
		n := f.counts[finding]
		if n == 0 {
			continue
		}
		text := ""
		switch finding {
		case store.FoundMissing:
			text = "jobs of pending messages were gone; the messages have new ones"
		case store.FoundCompleted, store.FoundDiscarded:
			text = "jobs of pending messages had ended; the messages have new ones"
		case store.FoundCancelled:
			text = "jobs of pending messages were cancelled; the messages are failed"
		case store.FoundRepaired:
			text = "failed messages were changed by SQL; their sums are right again, and the pending ones have jobs"
		}
		f.w.cfg.Logger.Warn(text, "found", finding, "messages", n)
	}
}
