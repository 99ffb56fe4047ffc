package e2e

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

var errKilled = errors.New("the process that committed is dead")

// The four points at which a process can die between Kafka and the receiver. Each is held open from outside, by a lock in the
// database or by a broker that does not answer, so that the real binaries die exactly there.

// Before the transaction: nothing is stored, no offset moved, and the records are read again.
func TestKilledBeforeTheTransaction(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		e := newEnv(t, c, 2)
		release := e.lock(`LOCK TABLE ferry.messages IN SHARE MODE`)
		in := e.ingester()
		e.produce(0, 200, 2)
		e.blocked()
		in.Kill()
		release()
		for tp, committed := range c.Committed(t, e.group) {
			if committed.Offset > 0 {
				t.Errorf("%v: offset %d was committed before anything was stored", tp, committed.Offset)
			}
		}
		e.ingester()
		e.forwarder()
		e.accounted(200)
		if d := e.duplicates(); d != 0 {
			t.Errorf("%d requests too many", d)
		}
	})
}

// After the transaction and before the offset commit: what was stored is not stored again.
func TestKilledBeforeTheCommit(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	e := newEnv(t, c, 2)
	killed := make(chan struct{})
	c.Fake.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake.SleepControl(func() { <-killed })
		return nil, errKilled, true // the request of the dead: never answered, never carried out
	})
	in := e.ingester()
	e.produce(0, 200, 2)
	e.is(patience, "200", `SELECT count(*)::text FROM ferry.messages`)
	in.Kill()
	e.forwarder()
	e.is(patience, "200", delivered)
	for tp, committed := range c.Committed(t, e.group) {
		if committed.Offset > 0 {
			t.Fatalf("%v: offset %d was committed", tp, committed.Offset)
		}
	}
	close(killed)
	e.ingester()
	e.produce(200, 100, 2)
	e.accounted(300)
	if d := e.duplicates(); d != 0 {
		t.Errorf("%d requests too many", d)
	}
}

// After the response and before its outcome is stored: the one window. Each request in flight may come twice, with the
// same Idempotency-Key, and no other.
func TestKilledBeforeTheOutcome(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	e.produce(0, 300, 1)
	e.ingester()
	e.is(patience, "300", `SELECT count(*)::text FROM ferry.deliveries`)
	release := e.lock(`LOCK TABLE ferry.attempts IN SHARE MODE`)
	fw := e.forwarder()
	e.receiver.WaitCount(t, 50)
	e.blocked()
	fw.Kill()
	release()
	sent := e.receiver.Count()
	e.forwarder()
	e.accounted(300)
	if d := e.duplicates(); d > sent {
		t.Errorf("%d requests too many, and only %d were without a stored outcome", d, sent)
	}
}

// After the outcome and before River knows it: the job runs again, and sends nothing.
func TestKilledAfterTheOutcome(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	e.receiver.Always(receivertest.Status(200).After(300 * time.Millisecond))
	e.produce(0, 60, 1)
	e.ingester()
	e.is(patience, "60", `SELECT count(*)::text FROM ferry.deliveries`)
	fw := e.forwarder()
	e.receiver.WaitCount(t, 1)
	release := e.lock(`SELECT id FROM ferry.river_job FOR UPDATE`)
	e.is(patience, "60", delivered)
	fw.Kill()
	release()
	if got, _ := e.ask(`SELECT (count(*) > 0)::text FROM ferry.river_job WHERE state = 'running'`); got != "true" {
		t.Fatal("every job was completed before the process died")
	}
	e.forwarder()
	e.is(rescuePatience, "0", `SELECT count(*)::text FROM ferry.river_job WHERE kind = 'forward' AND state NOT IN ('completed', 'cancelled', 'discarded')`)
	e.accounted(60)
	if d := e.duplicates(); d != 0 {
		t.Errorf("%d requests too many", d)
	}
	if got, _ := e.ask(`SELECT max(attempts)::text FROM ferry.deliveries`); got != "1" {
		t.Errorf("up to %s attempts counted, want 1", got)
	}
}

// A forwarder dies with 50 requests in flight: all are delivered within 90 s, each in flight at most once more.
func TestForwarderKilledInFlight(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	e.receiver.Always(receivertest.Hang())
	e.produce(0, 500, 1)
	e.ingester()
	fw := e.forwarder()
	e.receiver.WaitCount(t, 50)
	fw.Kill()
	killed := time.Now()
	inFlight := e.receiver.Count()
	e.receiver.Always(receivertest.Status(200))
	e.forwarder()
	e.is(rescuePatience, "500", delivered)
	if took := time.Since(killed); took > 90*time.Second {
		t.Errorf("all delivered after %v", took)
	}
	e.accounted(500)
	if d := e.duplicates(); d > inFlight {
		t.Errorf("%d requests too many with %d in flight", d, inFlight)
	}
}
