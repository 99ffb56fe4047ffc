package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Lifecycle ends what was started, last in first out. Whatever starts registers its stop at once, so that a start that
// fails half way leaves nothing behind.
type Lifecycle struct {
	log    *slog.Logger
	failed chan error

	mu      sync.Mutex
	stops   []stop
	stopped chan struct{} // nil: Stop was not called; closed: it is done
	err     error
}

type stop struct {
	name  string
	limit time.Duration
	run   func(context.Context) error
}

// NewLifecycle returns one with nothing to stop.
func NewLifecycle(log *slog.Logger) *Lifecycle {
	return &Lifecycle{log: log, failed: make(chan error, 1)}
}

// Add registers how to stop what was just started. The context of run ends after limit; a run that does not return by
// then is left behind. After Stop was called, run is called at once.
func (l *Lifecycle) Add(name string, limit time.Duration, run func(context.Context) error) {
	s := stop{name: name, limit: limit, run: run}
	l.mu.Lock()
	late := l.stopped != nil
	if !late {
		l.stops = append(l.stops, s)
	}
	l.mu.Unlock()
	if late {
		if err := s.bounded(context.Background()); err != nil {
			l.log.Warn("stopping did not end well", "part", name, "error", err)
		}
	}
}

// Go runs a part until it returns, and registers a stop that cancels its context and waits for it. The context carries
// ctx's values and not its end: the order of the stops decides. An error that run returns before it was asked to stop
// comes out of Failed.
func (l *Lifecycle) Go(ctx context.Context, name string, limit time.Duration, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() {
		err := run(ctx)
		if err != nil && ctx.Err() == nil {
			select {
			case l.failed <- err:
			default: // an earlier one ends the process already
			}
			err = nil
		}
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		done <- err
	}()
	l.Add(name, limit, func(stopCtx context.Context) error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-stopCtx.Done():
			return context.Cause(stopCtx)
		}
	})
}

// Failed gives the first error of a part that ended by itself.
func (l *Lifecycle) Failed() <-chan error { return l.failed }

// Wait returns when ctx is done (nil) or a part failed (its error).
func (l *Lifecycle) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-l.failed:
		return err
	}
}

// Stop stops everything, the last started first, and returns what did not stop well. It returns when ctx is done at the
// latest. Another call waits for the first one and returns the same.
func (l *Lifecycle) Stop(ctx context.Context) error {
	l.mu.Lock()
	if l.stopped != nil {
		stopped := l.stopped
		l.mu.Unlock()
		select {
		case <-stopped:
			return l.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	l.stopped = make(chan struct{})
	stops := l.stops
	l.stops = nil
	l.mu.Unlock()

	var errs []error
	for i := len(stops) - 1; i >= 0; i-- {
		start := time.Now()
		err := stops[i].bounded(ctx)
		l.log.Debug("stopped", "part", stops[i].name, "duration", time.Since(start))
		if err != nil {
			errs = append(errs, err)
		}
	}
	l.err = errors.Join(errs...)
	close(l.stopped)
	return l.err
}

// bounded calls run and waits for it within its limit. A run that ignores its context is given a moment more, so that
// one that is just about to return is not left behind.
func (s stop) bounded(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("took longer than %s", s.limit))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done:
		case <-time.After(stopMercy):
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("stopping %s: %w", s.name, err)
	}
	return nil
}

// stopMercy is what a stop that is out of time gets to notice it.
const stopMercy = 100 * time.Millisecond
