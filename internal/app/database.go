package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ferry-forward/ferry/internal/admin"
	"github.com/ferry-forward/ferry/internal/config"
	"github.com/ferry-forward/ferry/internal/migrate"
	"github.com/ferry-forward/ferry/internal/observe"
	"github.com/ferry-forward/ferry/internal/store"
)

const (
	// askTime bounds one question to the database; a database that is slower counts as away.
	askTime = 5 * time.Second
	// firstAsk and lastAsk bound the wait between two questions while the database is away.
	firstAsk = 250 * time.Millisecond
	lastAsk  = 5 * time.Second
	// watchEvery is the time between two questions while all is well.
	watchEvery = 5 * time.Second
	// storeStop bounds how long connections in use hold up the end of a process.
	storeStop = 3 * time.Second
)

var errAskTime = errors.New("the database did not answer within 5 s")

// OpenStore opens the store, registers its stop, and serves the pool's metrics. It does not need the database to be
// there; an error is wrong use (a URL that can't be read).
func (s *Setup) OpenStore(ctx context.Context, common *config.Common, cfg store.Config) (*store.Store, error) {
	cfg.URL, cfg.PollOnly, cfg.Logger = common.DatabaseURL.Reveal(), common.PollOnly, s.Log.Logger
	cfg.DeadLetters = s.Routes.DeadLetters()
	st, err := store.Open(ctx, cfg)
	if err != nil {
		return nil, Usage(err)
	}
	s.Life.Add("database connections", storeStop, func(context.Context) error {
		st.Close()
		return nil
	})
	s.Metrics.ServePool(func() observe.PoolStats {
		stat := st.Pool().Stat()
		return observe.PoolStats{
			Acquired: stat.AcquiredConns(), Idle: stat.IdleConns(), Constructing: stat.ConstructingConns(), Max: stat.MaxConns(),
			Acquires: stat.AcquireCount(), EmptyAcquires: stat.EmptyAcquireCount(), CanceledAcquires: stat.CanceledAcquireCount(),
			NewConns: stat.NewConnsCount(), AcquireTime: stat.AcquireDuration(),
		}
	})
	return st, nil
}

// ServeMessages serves ferry_messages, counted by the store.
func (s *Setup) ServeMessages(st *store.Store) {
	s.Metrics.ServeMessages(func(ctx context.Context) (map[string]observe.Counts, error) {
		counts, err := st.Counts(ctx)
		if err != nil {
			return nil, fmt.Errorf("counting messages: %w", err)
		}
		all := make(map[string]observe.Counts, len(counts))
		for route, c := range counts {
			all[route] = observe.Counts{Pending: c.Pending, Delivered: c.Delivered, Failed: c.Failed}
		}
		return all, nil
	}, s.Log.Logger)
}

// AwaitDatabase waits until check, which asks the database once, finds nothing wrong, and tells in /readyz what it waits
// for: a database that is away may come, and so may a schema that is missing. A schema that this binary must not run
// on, and an error that is neither a *store.SchemaError nor a *store.Error, are refused at once.
func (s *Setup) AwaitDatabase(ctx context.Context, check func(context.Context) error) error {
	for wait := firstAsk; ; wait = min(2*wait, lastAsk) {
		err := s.ask(ctx, check)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("waiting for the database: %w", context.Cause(ctx))
		case refuses(err):
			return Usage(err)
		}
		s.Log.Warn("waiting for the database", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// WatchDatabase asks again and again until the process stops, and keeps the parts database and schema up to date.
func (s *Setup) WatchDatabase(ctx context.Context, check func(context.Context) error) {
	s.Life.Go(ctx, "database watch", time.Second, func(ctx context.Context) error {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				if err := s.ask(ctx, check); err != nil && ctx.Err() == nil {
					s.Log.Warn("the database is not as it should be, asking again", "error", err)
				}
			}
		}
	})
}

// ask asks the database once and sets the parts that the answer is about.
func (s *Setup) ask(ctx context.Context, check func(context.Context) error) error {
	asking, cancel := context.WithTimeoutCause(ctx, askTime, errAskTime)
	defer cancel()
	err := check(asking)
	var schema *store.SchemaError
	switch {
	case err == nil:
		s.Parts.Set(admin.Database, true, "")
		s.Parts.Set(admin.Schema, true, "")
	case errors.As(err, &schema):
		s.Parts.Set(admin.Database, true, "")
		s.Parts.Set(admin.Schema, false, err.Error())
	case ctx.Err() == nil:
		s.Parts.Set(admin.Database, false, err.Error())
	}
	return err
}

// refuses says whether waiting is of no use. A schema that is not there yet, or half there while a migration runs, may
// come; one that was made for newer binaries, or is older than what this one works on, is for whoever rolls out.
func refuses(err error) bool {
	var schema *store.SchemaError
	if errors.As(err, &schema) {
		return schema.TooNew || !schema.Migrating && schema.Version > 0 && schema.Version < migrate.Minimum
	}
	var database *store.Error
	return !errors.As(err, &database) && !errors.Is(err, errAskTime)
}
