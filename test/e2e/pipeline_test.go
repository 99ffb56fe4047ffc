package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// Records of several partitions go through both binaries, byte for byte, and the database tells each one's story.
func TestPipeline(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		const n = 2000
		e := newEnv(t, c, 4)
		e.ingester()
		e.forwarder()
		e.produce(0, n, 4)
		e.accounted(n)
		if d := e.duplicates(); d != 0 {
			t.Errorf("%d requests too many, although nothing failed", d)
		}
		for _, r := range e.receiver.ByKey()["m7"] {
			if got, want := string(r.Body), `{"id":"m7","n":7}`; got != want {
				t.Errorf("body %s, want %s", got, want)
			}
		}
		e.is(patience, "4", fmt.Sprintf(`SELECT count(*)::text FROM ferry.positions WHERE "group" = '%s' AND next_offset = %d`, e.group, n/4))
		if got, _ := e.ask(`SELECT topic || ' ' || partition || ' ' || status || ' ' || attempts || ' ' || http_status FROM ferry.message_status WHERE message_key = 'm7'`); got != e.topic+" 3 delivered 1 200" {
			t.Errorf("the story of m7: %s", got)
		}
		kafkatest.Wait(t, "all offsets committed", func() bool { return c.Lag(t, e.group, e.topic) == 0 })
	})
}

// A key that comes twice is delivered once: within a batch, in another batch, and after the group's offsets were reset.
// The same key with another payload is kept as failed.
func TestDuplicatesAndConflicts(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		e := newEnv(t, c, 1)
		e.kafka.Produce(t, e.topic, kafkatest.Value(`{"id":"a","n":1}`), kafkatest.Value(`{"id":"a","n":1}`), kafkatest.Value(`{"id":"b"}`), kafkatest.Value(`{"id":"a","n":2}`))
		in := e.ingester()
		e.forwarder()
		e.is(patience, "2", delivered)
		e.kafka.Produce(t, e.topic, kafkatest.Value(`{"id":"b"}`), kafkatest.Value(`{"id":"c"}`))
		e.is(patience, "3", delivered)
		const sums = `SELECT sum(consumed) || ' ' || sum(stored) || ' ' || sum(duplicates) || ' ' || sum(conflicts) FROM ferry.ledger`
		e.is(patience, "6 4 2 1", sums)
		if code, took := in.Term(15 * time.Second); code != 0 || took > 10*time.Second {
			t.Errorf("the ingester ended with %d after %v", code, took)
		}
		// An operator's reset; the row of positions would stand before it, so it goes too.
		if _, err := e.pool.Exec(t.Context(), `DELETE FROM ferry.positions`); err != nil {
			t.Fatal(err)
		}
		c.Commit(t, e.group, message.TopicPartition{Topic: e.topic}, 0)
		e.ingester()
		e.is(patience, "12 4 8 1", sums)
		if n := e.receiver.Count(); n != 3 {
			t.Errorf("%d requests, want 3", n)
		}
		if got, _ := e.ask(`SELECT reason || ' ' || left(message_key, 2) FROM ferry.message_status WHERE status = 'failed'`); got != "conflict a#" {
			t.Errorf("the conflict: %q", got)
		}
	})
}

// SIGTERM under load ends both binaries in time, and nothing is sent twice.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 3)
	const n = 3000
	e.receiver.Always(receivertest.Status(200).After(20 * time.Millisecond))
	e.produce(0, n, 3)
	for range 3 {
		in, fw := e.ingester(), e.forwarder()
		before := e.receiver.Count()
		e.receiver.WaitUpTo(t, patience, "some requests", func() bool { return e.receiver.Count() > before+100 || e.receiver.Keys() == n })
		in.Signal(syscall.SIGTERM)
		if code, took := fw.Term(25 * time.Second); code != 0 || took > 10*time.Second {
			t.Errorf("the forwarder ended with %d after %v", code, took)
		}
		if code := in.Wait(10 * time.Second); code != 0 {
			t.Errorf("the ingester ended with %d", code)
		}
		if got, _ := e.ask(`SELECT count(*)::text FROM ferry.river_job WHERE state = 'running'`); got != "0" {
			t.Errorf("%s jobs left running", got)
		}
	}
	e.ingester()
	e.forwarder()
	e.accounted(n)
	if d := e.duplicates(); d != 0 {
		t.Errorf("%d requests too many: a graceful stop aborted them", d)
	}
}

// One route hangs with a backlog; the other one keeps its speed.
func TestSlowRouteHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	slow := receivertest.New(t, receivertest.Options{})
	slow.Always(receivertest.Hang())
	slowTopic := e.kafka.Topic(t, "slow", 1)
	_, second, _ := strings.Cut(fmt.Sprintf(routeFile, slowTopic, slow.URL()), "routes:\n")
	e.writeRoutes(fmt.Sprintf(routeFile, e.topic, e.receiver.URL()) + strings.Replace(second, "name: events", "name: slow", 1))
	var backlog []kafkatest.Record
	for i := range 1000 {
		backlog = append(backlog, kafkatest.Value(fmt.Sprintf(`{"id":"s%d"}`, i)))
	}
	e.kafka.Produce(t, slowTopic, backlog...)
	e.ingester()
	e.forwarder()
	e.is(patience, "1000", `SELECT count(*)::text FROM ferry.messages WHERE route = 'slow'`)
	slow.WaitCount(t, 50)
	e.produce(0, 200, 1)
	e.is(patience, "200", delivered)
	got, _ := e.ask(`SELECT (percentile_cont(0.95) WITHIN GROUP (ORDER BY settled_at - received_at) < interval '2 s')::text FROM ferry.message_status WHERE route = 'events'`)
	if got != "true" {
		t.Errorf("the healthy route's p95 is 2 s or more")
	}
}
