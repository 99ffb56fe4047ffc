package e2e

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

const expired = `SELECT expired_unread::text FROM ferry.positions`

// Kafka removes records that nobody has read, while there is no ingester: they are counted, an ERROR is written, and
// reading goes on at the first record there is.
func TestRemovedWhileStopped(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		e := newEnv(t, c, 1)
		in := e.ingester(kafkaConfig(quick))
		e.produce(0, 100, 1)
		e.stored(100)
		if code, _ := in.Term(patience); code != 0 {
			t.Errorf("the ingester ended with %d", code)
		}
		e.produce(100, 100, 1)
		c.DeleteRecords(t, e.partition(0), 150)
		in = e.ingester(kafkaConfig(quick))
		e.atEnds()
		e.is(patience, "50", expired)
		e.is(patience, "150", messages)
		removedOnce(t, e, in)
		in.Kill() // and it is not counted again
		in = e.ingester(kafkaConfig(quick))
		e.produce(200, 10, 1)
		e.is(patience, "160", messages)
		e.is(patience, "50", expired)
		if got := logLines(in, "error", "removed"); len(got) > 0 {
			t.Errorf("told again: %s", got)
		}
	})
}

// The same while the ingester waits for its database with a full buffer.
func TestRemovedWhileHeldUp(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		const n, first = 1000, 900
		e := newEnv(t, c, 1)
		in := e.ingester("FERRY_BUFFER_BYTES=1MiB", "FERRY_BATCH_BYTES=100KiB", "FERRY_WRITERS=1")
		e.produce(0, 1, 1)
		e.stored(1)
		release := e.lock(`LOCK TABLE ferry.messages IN SHARE MODE`)
		pad := bytes.Repeat([]byte("x"), 10_000)
		for i := 1; i < n; i++ {
			c.Produce(t, e.topic, kafkatest.Record{Value: fmt.Appendf(nil, `{"id":"m%d","pad":"%s"}`, i, pad)})
		}
		e.blocked()
		in.WaitLog(`"message":"partitions paused"`, patience)
		c.DeleteRecords(t, e.partition(0), first)
		release()
		e.atEnds()
		// What had been read is stored, what had not is counted, and nothing lies between.
		e.is(patience, fmt.Sprint(n-first), `SELECT count(*)::text FROM ferry.messages WHERE "offset" >= $1::text::int`, fmt.Sprint(first))
		e.none("records that were read and are missing",
			`SELECT (max("offset") + 1 - count(*))::text FROM ferry.messages WHERE "offset" < $1::text::int`, fmt.Sprint(first))
		e.none("offsets that are neither stored nor counted",
			`SELECT ($1::text::int - (SELECT count(*) FROM ferry.messages) - (SELECT expired_unread FROM ferry.positions))::text`, fmt.Sprint(n))
		if got, _ := e.ask(messages); got == fmt.Sprint(n) {
			t.Error("everything was read before it was removed: the test shows nothing")
		}
		removedOnce(t, e, in)
	})
}

func removedOnce(t *testing.T, e *env, in *proctest.Proc) {
	t.Helper()
	if got := logLines(in, "error", "removed"); len(got) != 1 {
		t.Errorf("%d lines tell of removed records: %s", len(got), got)
	}
	e.caughtUp(in, 1)
}
