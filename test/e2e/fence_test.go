package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// A group is killed after some of its messages were delivered and some had left it for jobs of their own; it is rescued, and
// then every job is retried by hand. No message is sent by a job that does not own it, nor after it was delivered.
func TestGroupKilledAfterPeeling(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	e.writeRoutes(strings.Replace(fmt.Sprintf(routeFile, e.topic, e.receiver.URL()), "initial: 200ms, max: 2s", "initial: 5m, max: 5m", 1))
	e.save(0, values(20)...)
	for i := range 5 {
		e.receiver.On(fmt.Sprintf("m%d", 10+i), receivertest.Status(500), receivertest.Status(200))
		e.receiver.On(fmt.Sprintf("m%d", 15+i), receivertest.Hang(), receivertest.Status(200))
	}
	fw := e.forwarder()
	e.is(patience, "10", delivered)
	e.is(patience, "5", `SELECT count(*)::text FROM ferry.river_job WHERE args->>'own' = 'true' AND state = 'scheduled'`)
	e.receiver.WaitCount(t, 20)
	fw.Kill()
	e.forwarder()
	e.is(rescuePatience, "15", delivered)
	for i := range 20 {
		want := 1
		if i >= 15 {
			want = 2 // in flight when the process died
		}
		if got := e.receiver.CountByKey()[fmt.Sprintf("m%d", i)]; got != want {
			t.Errorf("m%d was sent %d times before the jobs were retried, want %d", i, got, want)
		}
	}
	// What the retry button of River UI does, on every job at once: a message that waits is sent now, everything else stays.
	if _, err := e.pool.Exec(t.Context(), `UPDATE ferry.river_job SET state = 'available', scheduled_at = now(), finalized_at = NULL WHERE kind = 'forward' AND state <> 'running'`); err != nil {
		t.Fatal(err)
	}
	e.is(patience, "20", delivered)
	e.is(patience, "0", `SELECT count(*)::text FROM ferry.river_job WHERE kind = 'forward' AND state NOT IN ('completed', 'cancelled', 'discarded')`)
	for i := range 20 {
		want := 1
		if i >= 10 {
			want = 2
		}
		if got := e.receiver.CountByKey()[fmt.Sprintf("m%d", i)]; got != want {
			t.Errorf("m%d was sent %d times, want %d", i, got, want)
		}
	}
}
