package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/ferry-forward/ferry/internal/forward"
	"github.com/ferry-forward/ferry/internal/forward/breaker"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
	"github.com/ferry-forward/ferry/internal/worker"
)

type stopping struct{ *testing.M }

func (s stopping) Run() int {
	code := s.M.Run()
	pgtest.Stop()
	return code
}

func TestMain(m *testing.M) { kafkatest.Main(stopping{m}) }

// deliverFunc answers for a destination.
type deliverFunc func(ctx context.Context, m *message.Message, d *message.Delivery) forward.Result

func (f deliverFunc) Deliver(ctx context.Context, m *message.Message, d *message.Delivery) forward.Result {
	return f(ctx, m, d)
}

// deliverer is a deliverFunc for messages that are all too old, or none.
type deliverer struct {
	deliverFunc

	expired bool
}

func (d deliverer) Expired(*message.Delivery) bool { return d.expired }

type noMetrics struct{}

func (noMetrics) Attempt(string, message.Verdict, string) {}
func (noMetrics) Request(string, time.Duration)           {}
func (noMetrics) EndToEnd(string, time.Duration)          {}
func (noMetrics) InFlight(string, int)                    {}
func (noMetrics) Slots(string, int, int)                  {}

func attemptOf(v message.Verdict, status int, text string) *message.Attempt {
	return &message.Attempt{StartedAt: time.Now(), Duration: time.Millisecond, Verdict: v, HTTPStatus: status, Error: text}
}

func delivered() forward.Result {
	return forward.Result{Status: message.StatusDelivered, Counted: true, Attempt: attemptOf(message.Delivered, 200, "")}
}

func retryIn(d time.Duration) forward.Result {
	return forward.Result{Status: message.StatusPending, Counted: true, NextAttempt: time.Now().Add(d), Attempt: attemptOf(message.Retry, 500, "")}
}

func holdFor(d time.Duration) forward.Result {
	return forward.Result{Status: message.StatusPending, NextAttempt: time.Now().Add(d), Attempt: attemptOf(message.Hold, 429, "")}
}

func failed(reason message.Reason, v message.Verdict, status int) forward.Result {
	return forward.Result{Status: message.StatusFailed, Reason: reason, Counted: true, Attempt: attemptOf(v, status, "")}
}

// rig is a database with messages of route "r", and forwarders that work on it.
type rig struct {
	t     *testing.T
	pool  *pgxpool.Pool
	store *store.Store
	sent  sync.Map // message key → *atomic.Int64
	next  int64
}

func newRig(t *testing.T, jobSize int) *rig {
	t.Helper()
	ctx := context.Background()
	s, err := store.Open(ctx, store.Config{URL: pgtest.New(t), JobSizes: map[string]int{"r": jobSize}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &rig{t: t, pool: s.Pool(), store: s}
}

// add stores messages k<from>…k<to-1> as one batch.
func (g *rig) add(n int) {
	g.t.Helper()
	tp := message.TopicPartition{Topic: "events"}
	b := &message.Batch{Group: "g"}
	for range n {
		rec := &message.Record{Position: message.Position{TopicPartition: tp, Offset: g.next}, Value: []byte(fmt.Sprintf("v%d", g.next))}
		b.Incoming = append(b.Incoming, message.Incoming{Route: "r", Key: fmt.Sprintf("k%d", g.next), Record: rec, Result: message.IngestStored})
		g.next++
	}
	if _, err := g.store.Save(context.Background(), b); err != nil {
		g.t.Fatal(err)
	}
}

func (g *rig) count(key string) *atomic.Int64 {
	n, _ := g.sent.LoadOrStore(key, new(atomic.Int64))
	return n.(*atomic.Int64)
}

type options struct {
	concurrency          int
	jobTime, rescueAfter time.Duration
	jobSize              int
	breaker              *breaker.Breaker
	holdMax              time.Duration
	limit                worker.Limit
	expired              bool
}

type forwarder struct {
	w      *worker.Forward
	client *river.Client[pgx.Tx]
}

// start runs a forwarder until the end of the test.
func (g *rig) start(o options, deliver deliverFunc) *forwarder {
	g.t.Helper()
	if o.concurrency == 0 {
		o.concurrency = 10
	}
	if o.jobTime == 0 {
		o.jobTime, o.rescueAfter = 25*time.Second, 40*time.Second
	}
	if o.breaker == nil {
		o.breaker = breaker.New(breaker.Config{Concurrency: o.concurrency}, time.Now())
	}
	if o.holdMax == 0 {
		o.holdMax = time.Second
	}
	if o.jobSize == 0 {
		o.jobSize = 20
	}
	counting := func(ctx context.Context, m *message.Message, d *message.Delivery) forward.Result {
		g.count(m.Key).Add(1)
		return deliver(ctx, m, d)
	}
	rt := &route.Route{Name: "r", Concurrency: o.concurrency, JobSize: o.jobSize, HTTP: route.HTTP{Timeout: 500 * time.Millisecond}, Breaker: route.Breaker{HoldMax: o.holdMax}}
	w := worker.NewForward(worker.Config{
		Lanes: []worker.Lane{{Route: rt, Deliverer: deliverer{counting, o.expired}, Breaker: o.breaker, Limit: o.limit}}, Store: g.store, Metrics: noMetrics{},
		Logger: slog.New(slog.NewTextHandler(testWriter{g.t}, nil)), JobTime: o.jobTime, RescueAfter: o.rescueAfter, Forwarder: "f1",
	})
	workers := river.NewWorkers()
	if err := w.Register(workers); err != nil {
		g.t.Fatal(err)
	}
	client, err := river.NewClient(riverpgxv5.New(g.pool), &river.Config{
		Schema: "ferry", Queues: w.Queues(), Workers: workers, JobTimeout: o.jobTime, RescueStuckJobsAfter: o.rescueAfter,
		FetchCooldown: 5 * time.Millisecond, FetchPollInterval: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		g.t.Fatal(err)
	}
	if err := client.Start(context.Background()); err != nil {
		g.t.Fatal(err)
	}
	f := &forwarder{w: w, client: client}
	g.t.Cleanup(func() { f.stop(g.t) })
	return f
}

func (f *forwarder) stop(t *testing.T) {
	f.w.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := f.client.Stop(ctx); err != nil {
		f.w.Close()
		if err := f.client.StopAndCancel(context.Background()); err != nil {
			t.Errorf("stopping River: %v", err)
		}
	}
	f.w.Close()
}

// is waits until the query gives the text.
func (g *rig) is(want, query string, args ...any) {
	g.t.Helper()
	proctest.Eventually(g.t, 20*time.Second, func() error {
		var got string
		if err := g.pool.QueryRow(context.Background(), query, args...).Scan(&got); err != nil {
			if errors.Is(err, pgx.ErrNoRows) {
				return fmt.Errorf("%s: no rows, want %s", query, want)
			}
			return err
		}
		if got != want {
			return fmt.Errorf("%s: %q, want %q", query, got, want)
		}
		return nil
	})
}

// eventually waits until the condition holds.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	proctest.Eventually(t, 20*time.Second, func() error {
		if !holds() {
			return errors.New("it does not hold yet")
		}
		return nil
	})
}

// wait waits for a signal of the destination.
func (g *rig) wait(c <-chan struct{}) {
	g.t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		g.t.Fatal("no request came in 20 s")
	}
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

func (g *rig) exec(query string, args ...any) {
	g.t.Helper()
	if _, err := g.pool.Exec(context.Background(), query, args...); err != nil {
		g.t.Fatal(err)
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}
