package groupcommit_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/ferry-forward/ferry/internal/groupcommit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func double(_ context.Context, items []int) ([]int, error) {
	out := make([]int, len(items))
	for i, v := range items {
		out[i] = 2 * v
	}
	return out, nil
}

func TestEveryCallerGetsItsOwnResult(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	g := groupcommit.New(groupcommit.Config[int, int]{Max: 50, Run: func(ctx context.Context, items []int) ([]int, error) {
		runs.Add(1)
		if len(items) > 50 {
			t.Errorf("a run of %d items, more than Max", len(items))
		}
		return double(ctx, items)
	}})
	var wg sync.WaitGroup
	for i := range 2000 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			got, err := g.Do(context.Background(), i)
			if err != nil || got != 2*i {
				t.Errorf("Do(%d) = %d, %v", i, got, err)
			}
		}()
	}
	wg.Wait()
	if n := runs.Load(); n < 40 || n > 2000 {
		t.Errorf("%d runs for 2000 items", n)
	}
}

// What comes while a run is under way goes out as one batch after it.
func TestWaitingItemsGoTogether(t *testing.T) {
	t.Parallel()
	started, release := make(chan int, 10), make(chan struct{})
	g := groupcommit.New(groupcommit.Config[int, int]{Run: func(ctx context.Context, items []int) ([]int, error) {
		started <- len(items)
		<-release
		return double(ctx, items)
	}})
	var wg sync.WaitGroup
	do := func(i int) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if _, err := g.Do(context.Background(), i); err != nil {
				t.Error(err)
			}
		}()
	}
	do(0)
	if n := <-started; n != 1 {
		t.Fatalf("first run has %d items", n)
	}
	for i := 1; i <= 7; i++ {
		do(i)
	}
	for g.Waiting() < 7 {
		runtime.Gosched()
	}
	close(release)
	if n := <-started; n != 7 {
		t.Errorf("second run has %d items, want the 7 that waited", n)
	}
	wg.Wait()
}

func TestLeavingTakesTheItemBack(t *testing.T) {
	t.Parallel()
	started, release := make(chan []int, 10), make(chan struct{})
	g := groupcommit.New(groupcommit.Config[int, int]{Run: func(ctx context.Context, items []int) ([]int, error) {
		started <- items
		<-release
		if ctx.Err() != nil {
			t.Error("the run was cancelled by one of its callers")
		}
		return double(ctx, items)
	}})
	first, cancelFirst := context.WithCancel(context.Background())
	second, cancelSecond := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Add(2)
	go func() {
		defer wg.Done()
		if _, err := g.Do(first, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("first: %v", err)
		}
	}()
	<-started
	go func() {
		defer wg.Done()
		if _, err := g.Do(second, 2); !errors.Is(err, context.Canceled) {
			t.Errorf("second: %v", err)
		}
	}()
	for g.Waiting() < 1 {
		runtime.Gosched()
	}
	cancelSecond()
	cancelFirst()
	wg.Wait()
	close(release)
	got, err := g.Do(context.Background(), 3)
	if err != nil || got != 6 {
		t.Fatalf("third: %d, %v", got, err)
	}
	for _, item := range <-started {
		if item == 2 {
			t.Error("an item whose caller had left was run")
		}
	}
}

func TestErrorsAndPanicsReachEveryCaller(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, run := range map[string]func(context.Context, []int) ([]int, error){
		"error":       func(context.Context, []int) ([]int, error) { return nil, boom },
		"panic":       func(context.Context, []int) ([]int, error) { panic("boom") },
		"too few out": func(context.Context, []int) ([]int, error) { return nil, nil },
	} {
		g := groupcommit.New(groupcommit.Config[int, int]{Run: run, Parallel: 2})
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				if _, err := g.Do(context.Background(), i); err == nil {
					t.Errorf("%s: no error", name)
				}
			}()
		}
		wg.Wait()
	}
}
