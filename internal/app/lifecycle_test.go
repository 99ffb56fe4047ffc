package app_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferry-forward/ferry/internal/app"
)

func newLifecycle() *app.Lifecycle { return app.NewLifecycle(slog.New(slog.DiscardHandler)) }

func TestStopsLastInFirstOut(t *testing.T) {
	t.Parallel()
	life := newLifecycle()
	var order []string
	for _, name := range []string{"admin", "store", "kafka"} {
		life.Add(name, time.Second, func(context.Context) error {
			order = append(order, name)
			if name == "store" {
				return errors.New("it broke")
			}
			return nil
		})
	}
	err := life.Stop(t.Context())
	if fmt.Sprint(err) != "stopping store: it broke" {
		t.Errorf("err: %v", err)
	}
	if got := strings.Join(order, " "); got != "kafka store admin" {
		t.Errorf("order: %s", got)
	}
	if again := life.Stop(t.Context()); again != err || len(order) != 3 { //nolint:errorlint // the very same
		t.Errorf("a second stop: %v, %v", again, order)
	}
}

func TestAStopThatHangsHoldsUpNothing(t *testing.T) {
	t.Parallel()
	life := newLifecycle()
	var stopped []string
	never := make(chan struct{})
	defer close(never)
	life.Add("admin", time.Second, func(context.Context) error { stopped = append(stopped, "admin"); return nil })
	life.Add("kafka", 10*time.Millisecond, func(context.Context) error { <-never; return nil })
	err := life.Stop(t.Context())
	if fmt.Sprint(err) != "stopping kafka: took longer than 10ms" || len(stopped) != 1 {
		t.Errorf("got %v, stopped %v", err, stopped)
	}
}

func TestStopHasOneLimitForAll(t *testing.T) {
	t.Parallel()
	life := newLifecycle()
	for range 3 {
		life.Add("slow", time.Hour, func(ctx context.Context) error { <-ctx.Done(); return nil })
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := life.Stop(ctx); err != nil || time.Since(start) > 10*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

func TestAddAfterStopStopsAtOnce(t *testing.T) {
	t.Parallel()
	life := newLifecycle()
	if err := life.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	stopped := false
	life.Add("late", time.Second, func(context.Context) error { stopped = true; return nil })
	if !stopped {
		t.Error("what started late is left behind")
	}
}

func TestGoRunsUntilStopped(t *testing.T) {
	t.Parallel()
	life := newLifecycle()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var order []string
	for _, name := range []string{"watch", "ingest"} {
		life.Go(ctx, name, time.Second, func(ctx context.Context) error {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			order = append(order, name)
			return fmt.Errorf("loop: %w", ctx.Err())
		})
	}
	cancel()
	if err := life.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if err := life.Stop(context.WithoutCancel(ctx)); err != nil {
		t.Error(err)
	}
	if got := strings.Join(order, " "); got != "ingest watch" {
		t.Errorf("the end of the start's context ended parts out of order: %s", got)
	}
}

func TestGoTellsOfFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		life := newLifecycle()
		fatal := errors.New("fenced")
		for range 2 {
			life.Go(t.Context(), "ingest", time.Second, func(context.Context) error { return fatal })
		}
		synctest.Wait() // both have failed before they are asked to stop
		if err := life.Wait(t.Context()); !errors.Is(err, fatal) {
			t.Errorf("got %v", err)
		}
		if err := life.Stop(t.Context()); err != nil {
			t.Errorf("told twice: %v", err)
		}
	})
}
