package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
)

// The database stalls for longer than the group waits for a poll. Polling goes on, so that the member keeps its
// partitions, and nothing is read twice.
func TestSlowDatabase(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		interval, stall := 6*time.Second, 8*time.Second
		if full {
			interval, stall = 10*time.Second, 25*time.Second
		}
		e := newEnv(t, c, 2)
		gate, url := e.gate()
		in := e.ingester(through(url), kafkaConfig(fmt.Sprintf(
			"session.timeout.ms=6000,heartbeat.interval.ms=500,max.poll.interval.ms=%d", interval.Milliseconds())))
		e.forwarder()
		e.produce(0, 10, 2)
		e.stored(10)
		reopen := gate.shut()
		e.produce(10, 90, 2)
		<-time.After(stall) // the time is the case
		reopen()
		e.accounted(100)
		e.stored(100)
		if d := e.duplicateReads(); d != "0" {
			t.Errorf("%s records were read twice", d)
		}
		for _, text := range []string{"partitions lost", "partitions revoked"} {
			if got := logLines(in, "info", text); len(got) > 0 {
				t.Errorf("the group took partitions away: %s", got)
			}
			if got := logLines(in, "warn", text); len(got) > 0 {
				t.Errorf("the group took partitions away: %s", got)
			}
		}
		if !in.Running() {
			t.Error("the ingester ended")
		}
	})
}

// Without a database no offset moves, however long it takes; then everything is stored.
func TestNoCommitBeforeTheStore(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 2)
	db := e.ownDatabase()
	in := e.ingester()
	e.produce(0, 10, 2)
	e.stored(10)
	watch := e.watchOffsets()
	db.stop()
	e.produce(10, 10, 2)
	ready(t, in, 503, `"database":{"ok":false`)
	in.WaitLog("storing records is tried again", patience)
	outlast(time.Minute)
	for p := range int32(2) {
		if seen := watch.of(e.partition(p)); len(seen) != 1 {
			t.Errorf("partition %d: committed were %v without a database", p, seen)
		}
	}
	db.start()
	e.stored(20)
	watch.onlyForward(t)
	ready(t, in, 200, "")
}
