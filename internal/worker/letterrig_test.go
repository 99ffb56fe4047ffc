package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
	"github.com/ferry-forward/ferry/internal/worker"
)

// broker answers for Kafka and keeps what it took.
type broker struct {
	mu     sync.Mutex
	answer func(r *message.Record) error // nil: it takes everything
	took   []*message.Record
	asked  int
}

func (b *broker) Produce(ctx context.Context, r *message.Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	if b.answer != nil {
		if err := b.answer(r); err != nil {
			return err
		}
	}
	b.took = append(b.took, r)
	return ctx.Err()
}

func (b *broker) set(answer func(r *message.Record) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = answer
}

func (b *broker) state() (took []*message.Record, asked int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.took, b.asked
}

type refusal struct{ tooLarge, noTopic, odd bool }

func (refusal) Error() string    { return "refused\x00" }
func (r refusal) TooLarge() bool { return r.tooLarge }
func (r refusal) NoTopic() bool  { return r.noTopic }
func (r refusal) Odd() bool      { return r.odd || r.tooLarge }

type letterMetrics struct {
	mu sync.Mutex
	n  map[message.DeadLetterResult]int
}

func (m *letterMetrics) DeadLetter(_ string, r message.DeadLetterResult) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n[r]++
}

func (m *letterMetrics) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprint(m.n)
}

// letterRig is a database with messages of route "r", whose dead letters go to topic "dead".
type letterRig struct {
	*rig
	broker  *broker
	metrics *letterMetrics
	topics  map[string]string
	store   worker.DeadLetterStore
	jobTime time.Duration
	told    sync.Map
}

func newLetterRig(t *testing.T) *letterRig {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.New(t), DeadLetters: map[string]string{"r": "dead", "s": "dead"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &letterRig{
		rig: &rig{t: t, pool: s.Pool(), store: s}, broker: &broker{}, metrics: &letterMetrics{n: map[message.DeadLetterResult]int{}},
		topics: map[string]string{"r": "dead"}, store: s, jobTime: 25 * time.Second,
	}
}

// fail stores records of a route and has them fail.
func (g *letterRig) fail(route string, records ...message.Record) {
	g.t.Helper()
	b := &message.Batch{Group: "g"}
	for i := range records {
		r := &records[i]
		r.Topic, r.Partition, r.Offset = "events", 3, g.next
		b.Incoming = append(b.Incoming, message.Incoming{Route: route, Key: fmt.Sprintf("k%d", g.next), Record: r, Result: message.IngestStored})
		g.next++
	}
	if _, err := g.rig.store.Save(g.t.Context(), b); err != nil {
		g.t.Fatal(err)
	}
	rows, err := g.pool.Query(g.t.Context(), "SELECT message_id, job_id FROM ferry.deliveries WHERE status = 'pending' ORDER BY 1")
	if err != nil {
		g.t.Fatal(err)
	}
	outcomes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.Outcome, error) {
		o := store.Outcome{
			Route: route, Status: message.StatusFailed, Reason: message.Rejected, Detail: "no plate", Counted: true, Forwarder: "f",
			Attempt: &message.Attempt{StartedAt: time.Now(), Verdict: message.Reject, HTTPStatus: 400, ErrorCode: "998", Error: "bad"},
		}
		return o, row.Scan(&o.MessageID, &o.JobID)
	})
	if err != nil {
		g.t.Fatal(err)
	}
	if _, err := g.rig.store.Settle(g.t.Context(), outcomes); err != nil {
		g.t.Fatal(err)
	}
}

// work runs the worker until the end of the test.
func (g *letterRig) work(p worker.Producer) *worker.DeadLetter {
	g.t.Helper()
	w := worker.NewDeadLetter(worker.DeadLetterConfig{
		Topics: g.topics, Producer: p, Store: g.store, Metrics: g.metrics, JobTime: g.jobTime,
		Logger: slog.New(slog.NewTextHandler(testWriter{g.t}, nil)), Tell: func(topic, why string) { g.told.Store(topic, why) },
	})
	workers := river.NewWorkers()
	if err := w.Register(workers); err != nil {
		g.t.Fatal(err)
	}
	queues := map[string]river.QueueConfig{}
	w.Queues(queues)
	client, err := river.NewClient(riverpgxv5.New(g.pool), &river.Config{
		Schema: "ferry", Queues: queues, Workers: workers, JobTimeout: g.jobTime,
		FetchCooldown: 5 * time.Millisecond, FetchPollInterval: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		g.t.Fatal(err)
	}
	if err := client.Start(context.Background()); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		w.Drain()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := client.Stop(ctx); err != nil {
			g.t.Error(err)
		}
	})
	return w
}

// now has the jobs that wait run at once.
func (g *letterRig) now() {
	g.exec("UPDATE ferry.river_job SET scheduled_at = now(), state = 'available' WHERE kind = 'dead_letter' AND state IN ('scheduled', 'retryable')")
}

const (
	lettersDone    = "SELECT count(*)::text FROM ferry.river_job WHERE kind = 'dead_letter' AND state = 'completed'"
	lettersWaiting = "SELECT count(*)::text FROM ferry.river_job WHERE kind = 'dead_letter' AND metadata ->> 'snoozes' IS NOT NULL AND state IN ('scheduled', 'available')"
	lettersNoted   = "SELECT count(dead_lettered_at)::text FROM ferry.deliveries"
)

func h(name, value string) message.Header {
	return message.Header{Name: name, Value: []byte(value)}
}
