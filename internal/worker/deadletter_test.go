package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riverqueue/river"

	"github.com/ferry-forward/ferry/internal/kafka"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
	"github.com/ferry-forward/ferry/internal/worker"
)

// The record as it came, then Ferry's headers in the place of those that it brings from an earlier life.
func TestDeadLetter(t *testing.T) {
	t.Parallel()
	g := newLetterRig(t)
	original := []message.Header{
		h("trace", "1"), h("trace", "2"), {Name: "null"}, {Name: "empty", Value: []byte{}}, h("bin\xff", "\x00\xff"), h("ferry-other", "kept"), h("Ferry-Route", "kept"),
	}
	brought := append(append([]message.Header{h("ferry-route", "old"), h("ferry-http-status", "500")}, original...), h("ferry-value-omitted", "old"))
	g.fail("r", message.Record{Key: []byte("\x00k"), Value: []byte("\xff{"), Headers: brought, Timestamp: time.UnixMilli(1_700_000_000_123)},
		message.Record{}, message.Record{Key: []byte{}, Value: []byte{}})
	g.work(g.broker)
	g.is("3", lettersDone)
	g.is("3", lettersNoted)
	took, asked := g.broker.state()
	if asked != 3 {
		t.Errorf("%d asked", asked)
	}
	for _, r := range took {
		story := map[string]string{}
		for _, h := range r.Headers {
			story[h.Name] = string(h.Value)
		}
		if r.Topic != "dead" || !r.Timestamp.IsZero() {
			t.Errorf("%+v", r)
		}
		n := story["ferry-source-offset"]
		at, _ := time.Parse(time.RFC3339Nano, story["ferry-failed-at"])
		if time.Since(at) > time.Minute {
			t.Errorf("failed at %q", story["ferry-failed-at"])
		}
		own := []message.Header{
			h("ferry-route", "r"), h("ferry-message-key", "k"+n), h("ferry-reason", "rejected"), h("ferry-detail", "no plate"), h("ferry-attempts", "1"),
			h("ferry-http-status", "400"), h("ferry-error-code", "998"), h("ferry-error", "bad"),
			h("ferry-source-topic", "events"), h("ferry-source-partition", "3"), h("ferry-source-offset", n),
		}
		want := message.Record{Position: r.Position}
		switch n {
		case "0":
			want.Key, want.Value = []byte("\x00k"), []byte("\xff{")
			own = append(append(append([]message.Header{}, original...), own...), h("ferry-source-timestamp", "2023-11-14T22:13:20.123Z"))
		case "2":
			want.Key, want.Value = []byte{}, []byte{}
		}
		want.Headers = append(own, h("ferry-failed-at", story["ferry-failed-at"]))
		if !reflect.DeepEqual(*r, want) {
			t.Errorf("%s:\n%+v, want\n%+v", n, *r, want)
		}
	}
	if got := g.metrics.String(); got != "map[delivered:3]" {
		t.Error(got)
	}
}

// What the topic does not take is left out, one thing after another, and said.
func TestDeadLetterTooLarge(t *testing.T) {
	t.Parallel()
	g := newLetterRig(t)
	large := bytes.Repeat([]byte("x"), 5000)
	big := []message.Header{h("a", string(large)), h("b", "1")}
	g.fail("r", message.Record{Key: []byte("k"), Value: large, Headers: []message.Header{h("a", "1")}},
		message.Record{Key: []byte("k"), Headers: big}, message.Record{Key: large, Value: large, Headers: big})
	limit := 3000
	g.broker.set(func(r *message.Record) error {
		if r.Size() > limit {
			return fmt.Errorf("wrapped: %w", refusal{tooLarge: true})
		}
		return nil
	})
	g.work(g.broker)
	g.is("3", lettersDone)
	took, _ := g.broker.state()
	for _, r := range took {
		var omitted []string
		offset := ""
		for _, h := range r.Headers {
			if strings.HasSuffix(h.Name, "-omitted") {
				omitted = append(omitted, h.Name+": "+string(h.Value))
			}
			if h.Name == "ferry-source-offset" {
				offset = string(h.Value)
			}
		}
		got := fmt.Sprintf("%d %d %q", len(r.Key), len(r.Value), omitted)
		if want := map[string]string{
			"0": `1 0 ["ferry-value-omitted: 5000 bytes, more than the topic takes"]`,
			"1": `1 0 ["ferry-headers-omitted: 2 headers, more than the topic takes"]`,
			"2": `0 0 ["ferry-value-omitted: 5000 bytes, more than the topic takes" "ferry-headers-omitted: 2 headers, more than the topic takes" "ferry-key-omitted: 5000 bytes, more than the topic takes"]`,
		}[offset]; got != want {
			t.Errorf("%s: %s, want %s", offset, got, want)
		}
		if offset == "0" && r.Headers[0].Name != "a" {
			t.Error("headers were left out with the value")
		}
	}
	if got := g.metrics.String(); got != "map[delivered_without_record:2 delivered_without_value:1]" {
		t.Error(got)
	}
	// A topic that takes not even that delays this one, and no other.
	g.broker.mu.Lock()
	limit = 10
	g.broker.mu.Unlock()
	g.fail("r", message.Record{Value: []byte("v")})
	g.is("1", lettersWaiting)
	g.is("true", "SELECT (scheduled_at > now() + interval '50 s')::text FROM ferry.river_job WHERE kind = 'dead_letter' AND state = 'scheduled'")
	g.broker.set(nil)
	g.fail("r", message.Record{Value: []byte("v")})
	g.is("4", lettersDone)
	g.now()
	g.is("5", lettersDone)
}

// A topic that is missing, and whatever else Kafka says: the job waits, one alone tries, and all is written when the topic
// takes it.
func TestDeadLetterWaits(t *testing.T) {
	t.Parallel()
	g := newLetterRig(t)
	g.broker.set(func(*message.Record) error { return refusal{noTopic: true} })
	g.fail("r", message.Record{})
	g.work(g.broker)
	g.is("1", lettersWaiting)
	if why, _ := g.told.Load("dead"); why != "refused\x00" {
		t.Errorf("told %q", why)
	}
	g.fail("r", make([]message.Record, 20)...)
	g.is("21", lettersWaiting)
	if _, asked := g.broker.state(); asked != 1 {
		t.Errorf("%d tries of a topic that is missing", asked)
	}
	if got := g.metrics.String(); got != "map[no_topic:1]" {
		t.Error(got)
	}
	g.broker.set(nil)
	proctest.Eventually(t, 20*time.Second, func() error { // a probe is due after 5 s
		g.now()
		var n int
		if err := g.pool.QueryRow(t.Context(), "SELECT count(*) FROM ferry.river_job WHERE kind = 'dead_letter' AND state = 'completed'").Scan(&n); err != nil || n != 21 {
			return fmt.Errorf("%d written, %w", n, err)
		}
		return nil
	})
	if why, _ := g.told.Load("dead"); why != "" {
		t.Errorf("told %q", why)
	}
	g.is("21", lettersNoted)
}

// Of a route that is not known here, and without Kafka, jobs are left to others.
func TestDeadLetterOfOthers(t *testing.T) {
	t.Parallel()
	g := newLetterRig(t)
	g.fail("s", message.Record{})
	g.work(g.broker)
	g.is("1", "SELECT count(*)::text FROM ferry.river_job WHERE kind = 'dead_letter' AND state = 'scheduled' AND scheduled_at > now() + interval '50 s'")
	if _, asked := g.broker.state(); asked != 0 {
		t.Error("it was written")
	}
	queues := map[string]river.QueueConfig{}
	worker.NewDeadLetter(worker.DeadLetterConfig{}).Queues(queues)
	if len(queues) != 0 {
		t.Errorf("%v", queues)
	}
}

// A message that was purged has none; one that is replayed meanwhile has the one of its failure, and is not marked; one
// that is written already is not written again.
func TestDeadLetterOfAMessageThatWentOn(t *testing.T) {
	t.Parallel()
	g := newLetterRig(t)
	g.fail("r", message.Record{}, message.Record{}, message.Record{}, message.Record{})
	g.exec(`DELETE FROM ferry.messages WHERE message_key = 'k0'`)
	g.exec(`UPDATE ferry.deliveries SET status = 'pending', reason = NULL, settled_at = NULL WHERE message_id = (SELECT id FROM ferry.messages WHERE message_key = 'k1')`)
	g.exec(`UPDATE ferry.deliveries SET dead_lettered_at = now() WHERE message_id = (SELECT id FROM ferry.messages WHERE message_key = 'k2')`)
	g.exec(`UPDATE ferry.deliveries SET settled_at = now(), dead_lettered_at = now() WHERE message_id = (SELECT id FROM ferry.messages WHERE message_key = 'k3')`)
	g.work(g.broker)
	g.is("4", lettersDone)
	g.is("2", lettersNoted)
	if got := g.metrics.String(); got != "map[delivered:2 purged:1]" {
		t.Error(got)
	}
}

// flakyStore fails the first few times.
type flakyStore struct {
	worker.DeadLetterStore

	mu   sync.Mutex
	left int
}

func (s *flakyStore) DeadLettered(ctx context.Context, w []store.Written) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left--; s.left >= 0 {
		return errors.New("the database is away")
	}
	return s.DeadLetterStore.DeadLettered(ctx, w)
}

// The database is away when Kafka has it: it is told later, and nothing is written again.
func TestDeadLetterIsNotedLater(t *testing.T) {
	t.Parallel()
	g := newLetterRig(t)
	g.store = &flakyStore{DeadLetterStore: g.store, left: 3}
	g.fail("r", message.Record{})
	g.work(g.broker)
	g.is("1", lettersDone)
	g.is("1", lettersNoted)
	if _, asked := g.broker.state(); asked != 1 {
		t.Errorf("written %d times", asked)
	}
}

// A panic is an error without a NUL, and the job comes back.
func TestDeadLetterPanics(t *testing.T) {
	t.Parallel()
	g := newLetterRig(t)
	g.broker.set(func(*message.Record) error { panic("a\x00b") })
	g.fail("r", message.Record{})
	g.work(g.broker)
	g.is("panic: a\uFFFDb", "SELECT errors[1] ->> 'error' FROM ferry.river_job WHERE kind = 'dead_letter' AND state = 'retryable'")
	g.broker.set(nil)
	g.now()
	g.is("1", lettersDone)
}

// silent never answers.
type silent struct{ asked chan struct{} }

func (s silent) Produce(ctx context.Context, _ *message.Record) error {
	closeOnce(s.asked)
	<-ctx.Done()
	return ctx.Err()
}

// A process that stops gives back soon what Kafka has not taken.
func TestDeadLetterDrains(t *testing.T) {
	t.Parallel()
	g := newLetterRig(t)
	g.fail("r", message.Record{})
	s := silent{make(chan struct{})}
	w := g.work(s)
	g.wait(s.asked)
	begin := time.Now()
	w.Drain()
	g.is("true", "SELECT (count(*) > 0)::text FROM ferry.river_job WHERE kind = 'dead_letter' AND state <> 'running'")
	if took := time.Since(begin); took > 8*time.Second {
		t.Errorf("it took %v", took)
	}
	if got := g.metrics.String(); got != "map[]" {
		t.Error(got)
	}
}

// A burst of failures drains fast, through the real producer.
func TestDeadLettersInABurst(t *testing.T) {
	t.Parallel()
	c := kafkatest.Real(t)
	g := newLetterRig(t)
	topic := c.Topic(t, "dead", 3)
	g.topics = map[string]string{"r": topic}
	const n = 2000
	g.fail("r", make([]message.Record, n)...)
	p, err := kafka.NewProducer(kafka.Config{Brokers: []string{c.Addr}}, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	begin := time.Now()
	g.work(p)
	g.is(fmt.Sprint(n), lettersNoted)
	t.Logf("%d dead letters in %v", n, time.Since(begin))
	g.is(fmt.Sprint(n), lettersDone)
	ids := map[string]bool{}
	for _, r := range c.Records(t, topic) {
		key, _ := r.Header("ferry-message-key")
		ids[key] = true
	}
	if len(ids) != n || len(c.Records(t, topic)) != n {
		t.Errorf("%d records of %d messages", len(c.Records(t, topic)), len(ids))
	}
}
