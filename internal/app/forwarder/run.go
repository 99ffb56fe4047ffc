package forwarder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/config"
	"github.com/ferry-forward/ferry/internal/forward"
	"github.com/ferry-forward/ferry/internal/migrate"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/worker"
	"github.com/ferry-forward/ferry/riverjobs"
)

const (
	// stopReserve is what the rest of a stop may take after the time that requests in flight get.
	stopReserve = 8 * time.Second
	// cutOff is what River gets to take back what is still running when that time is over.
	cutOff = 5 * time.Second
	// fetchCooldown bounds how often a queue is asked for jobs; longer would bound the throughput.
	fetchCooldown = 5 * time.Millisecond
	// fetchPoll is the time between two looks for jobs that no notification told of.
	fetchPoll = time.Second
	// fetchPollOnly is the same where there are no notifications.
	fetchPollOnly = 50 * time.Millisecond
	// heartbeat is the time between two signs of life in the table forwarders.
	heartbeat = 10 * time.Second
	// partitionsEvery and partitionsAhead keep attempts partitions for the coming days.
	partitionsEvery = time.Hour
	partitionsAhead = 7
	// skewWarning is how far this host's clock may be from the database's without a word.
	skewWarning = 2 * time.Second
)

// Start starts what forwards messages, and registers every stop on s.Life.
func Start(ctx context.Context, cfg *config.Forwarder, s *app.Setup) error {
	st, err := s.OpenStore(ctx, &cfg.Common, store.Config{MaxConns: cfg.DatabaseMaxConns, AppName: "ferry-forwarder"})
	if err != nil {
		return err
	}
	s.ServeMessages(st)
	id := identity()
	w := makeWorker(ctx, cfg, s, st, id)
	letters, err := makeDeadLetters(cfg, s, st)
	if err != nil {
		return app.Usage(err)
	}
	client, err := makeClient(cfg, s, st, id, w, letters)
	if err != nil {
		return app.Usage(err)
	}
	if err := s.AwaitDatabase(ctx, st.CheckSchema); err != nil {
		return err
	}
	s.WatchDatabase(ctx, st.CheckSchema)
	keepHouse(ctx, s, st, store.Forwarder{
		ID: id, Version: s.Version.Version, Routes: names(worked(cfg, s.Routes)), RescueAfter: s.Routes.RescueAfter(),
	})
	if err := work(ctx, cfg, s, w, client); err != nil {
		return err
	}
	s.Life.Add("dead letters", time.Second, func(context.Context) error { // before River stops
		letters.Drain()
		return nil
	})
	return nil
}

// work starts River, again and again until it starts: the database may have gone since it was asked.
func work(ctx context.Context, cfg *config.Forwarder, s *app.Setup, w *worker.Forward, client *river.Client[pgx.Tx]) error {
	for wait := time.Second; ; wait = min(2*wait, 10*time.Second) {
		err := client.Start(context.WithoutCancel(ctx))
		if err == nil {
			break
		}
		s.Log.Warn("starting River, trying again", "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
	s.Life.Add("River", cfg.ShutdownTimeout+cutOff, func(context.Context) error { return stop(cfg.ShutdownTimeout, w, client) })
	s.Log.Info("working", "routes", names(worked(cfg, s.Routes)))
	return nil
}

var errInFlight = errors.New("requests were still in flight; River takes them back, no attempt is counted")

// stop takes no new jobs, gives back what waits, and lets requests in flight end within limit. What is left after that
// is cut off and given back.
func stop(limit time.Duration, w *worker.Forward, client *river.Client[pgx.Tx]) error {
	defer w.Close()
	w.Drain()
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, errInFlight)
	defer cancel()
	if err := client.Stop(ctx); err == nil {
		return nil
	}
	w.Close()
	last, cancelLast := context.WithTimeout(context.Background(), cutOff)
	defer cancelLast()
	if err := client.StopAndCancel(last); err != nil {
		return fmt.Errorf("cutting River off: %w", err)
	}
	return context.Cause(ctx)
}

func makeWorker(ctx context.Context, cfg *config.Forwarder, s *app.Setup, st *store.Store, id string) *worker.Forward {
	job, rescue := times(s.Routes)
	var lanes []worker.Lane
	for _, r := range worked(cfg, s.Routes) {
		b := newBreaker(ctx, s, r)
		d := forward.New(r, forward.Options{
			Breaker: b,
			Logger:  s.Log.Logger,
			Version: s.Version.Version,
			Observe: func(reused bool) { s.Metrics.Connection(r.Name, reused) },
		})
		s.Life.Add("connections of "+r.Name, time.Second, func(context.Context) error {
			d.Close()
			return nil
		})
		lanes = append(lanes, worker.Lane{Route: r, Deliverer: d, Limit: newLimit(s, st, r), Breaker: b})
	}
	return worker.NewForward(worker.Config{
		Lanes: lanes, Store: st, Metrics: s.Metrics, Logger: s.Log.Logger, JobTime: job, RescueAfter: rescue, Forwarder: id,
	})
}

func makeClient(
	cfg *config.Forwarder, s *app.Setup, st *store.Store, id string, w *worker.Forward, letters *worker.DeadLetter,
) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	if err := w.Register(workers); err != nil {
		return nil, err //nolint:wrapcheck // says what was being done
	}
	if err := letters.Register(workers); err != nil {
		return nil, err //nolint:wrapcheck // says what was being done
	}
	reconcile := makeReconcile(s, st, id)
	if err := reconcile.Register(workers); err != nil {
		return nil, err //nolint:wrapcheck // says what was being done
	}
	retention := worker.NewRetention(worker.RetentionConfig{
		Store: st, Logger: s.Log.Logger, Purged: s.Metrics.Purged, Routes: s.Routes.Routes,
	})
	if err := retention.Register(workers); err != nil {
		return nil, err //nolint:wrapcheck // says what was being done
	}
	queues := w.Queues()
	letters.Queues(queues)
	queues[riverjobs.MaintenanceQueue] = river.QueueConfig{MaxWorkers: 2} // one for each kind
	job, rescue := times(s.Routes)
	poll := fetchPoll
	if cfg.PollOnly {
		poll = fetchPollOnly
	}
	client, err := river.NewClient(riverpgxv5.New(st.Pool()), &river.Config{
		// By this id a later run knows who ran a job before: see store.RunningBefore.
		ID:     id,
		Schema: migrate.Schema, Workers: workers, Queues: queues, Logger: riverLog(s.Log.Logger, cfg.LogLevel),
		PeriodicJobs:  []*river.PeriodicJob{reconcile.Periodic(), retention.Periodic()},
		FetchCooldown: fetchCooldown, FetchPollInterval: poll, PollOnly: cfg.PollOnly,
		JobTimeout: job, RescueStuckJobsAfter: rescue,
		CompletedJobRetentionPeriod: cfg.CompletedJobRetention,
		CancelledJobRetentionPeriod: failedRetention(s.Routes), DiscardedJobRetentionPeriod: failedRetention(s.Routes),
	})
	if err != nil {
		return nil, fmt.Errorf("setting up River: %w", err)
	}
	return client, nil
}

func makeReconcile(s *app.Setup, st *store.Store, id string) *worker.Reconcile {
	return worker.NewReconcile(worker.ReconcileConfig{
		Store: st, Logger: s.Log.Logger, Reconciled: s.Metrics.Reconciled, Routes: s.Routes.Names(), Forwarder: id,
	})
}

// failedRetention is how long the jobs of failed messages are kept: as long as the messages. River's leader cleans up
// for all routes, hence the longest.
func failedRetention(file *route.File) time.Duration {
	var longest time.Duration
	for _, r := range file.Routes {
		longest = max(longest, r.Retention.Failed)
	}
	return longest
}

// worked returns the routes that this forwarder works.
func worked(cfg *config.Forwarder, file *route.File) []*route.Route {
	if len(cfg.RouteNames) == 0 {
		return file.Routes
	}
	return slices.DeleteFunc(slices.Clone(file.Routes), func(r *route.Route) bool { return !slices.Contains(cfg.RouteNames, r.Name) })
}

func names(routes []*route.Route) []string {
	out := make([]string, len(routes))
	for i, r := range routes {
		out[i] = r.Name
	}
	return out
}

// identity names this process among the forwarders: host, process id and start, since a container's process id is
// always the same.
func identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	const longest = 64 // of a host name by the kernel; River takes ids of 100
	return host[:min(len(host), longest)] + "-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixMilli(), 36)
}

// keepHouse shows this process in the table forwarders, compares its clock with the database's, and makes attempts
// partitions ahead. Its errors are the database's, which others watch.
func keepHouse(ctx context.Context, s *app.Setup, st *store.Store, me store.Forwarder) {
	every(ctx, s, "heartbeat", heartbeat, func(ctx context.Context) error {
		before := time.Now()
		if err := st.Heartbeat(ctx, me); err != nil {
			return err //nolint:wrapcheck // says what was being done
		}
		now, err := st.Now(ctx)
		if err != nil {
			return err //nolint:wrapcheck // says what was being done
		}
		after := time.Now()
		skew := now.Sub(before.Add(after.Sub(before) / 2))
		s.Metrics.ClockSkew(skew)
		if skew.Abs() > skewWarning {
			s.Log.Warn("this host's clock and the database's differ; keep both in time (NTP)", "skew", skew)
		}
		return nil
	})
	every(ctx, s, "attempts partitions", partitionsEvery, func(ctx context.Context) error {
		return st.EnsureAttemptPartitions(ctx, time.Now(), partitionsAhead) //nolint:wrapcheck // says what was being done
	})
}

// every runs a chore at once and then again and again; one that fails is run again soon.
func every(ctx context.Context, s *app.Setup, name string, interval time.Duration, chore func(context.Context) error) {
	s.Life.Go(ctx, name, time.Second, func(ctx context.Context) error {
		for {
			wait := interval
			if err := chore(ctx); err != nil && ctx.Err() == nil {
				s.Log.Warn("a chore did not end well, trying again", "chore", name, "error", err)
				wait = min(interval, heartbeat)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(wait):
			}
		}
	})
}

// riverLog leaves out what River says of each job that errs, which is an outcome and has a line of its own.
func riverLog(l *slog.Logger, level string) *slog.Logger {
	if strings.EqualFold(level, "debug") {
		return l
	}
	return slog.New(atLeastWarn{l.Handler()})
}

type atLeastWarn struct{ slog.Handler }

func (h atLeastWarn) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

func (h atLeastWarn) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeastWarn{h.Handler.WithAttrs(attrs)}
}

func (h atLeastWarn) WithGroup(name string) slog.Handler {
	return atLeastWarn{h.Handler.WithGroup(name)}
}
