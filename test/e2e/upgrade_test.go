package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

const (
	// oldFile rescues after 22 s, newFile after twice its longest timeout and 20 s.
	oldFile = `version: 1
defaults:
  retry: {initial: 200ms, max: 2s, max_attempts: 10}
  breaker: {enabled: false}
routes:
  - name: events
    topics: [%[1]s]
    message_key: .id
    job_size: 5
    http: {timeout: 1s, connect_timeout: 1s}
    request: {method: POST, url: "%[2]s/events"}
`
	newFile = oldFile + `  - name: slow
    topics: [%[1]s]
    message_key: .id
    job_size: 5
    http: {timeout: 62s, connect_timeout: 1s}
    request: {method: POST, url: "%[2]s/slow"}
`
	leader = `SELECT leader_id FROM ferry.river_leader WHERE expires_at > now()`
)

// routesIn writes a route file of a name of its own and returns the setting for it.
func (e *env) routesIn(name, format string) string {
	e.t.Helper()
	path := filepath.Join(e.dir, name)
	if err := os.WriteFile(path, fmt.Appendf(nil, format, e.topic, e.receiver.URL()), 0o600); err != nil {
		e.t.Fatal(err)
	}
	return "FERRY_ROUTES=" + path
}

// leads waits until some forwarder leads, and returns its id.
func (e *env) leads() (id string) {
	e.t.Helper()
	e.is(patience, "true", `SELECT (count(*) = 1)::text FROM ferry.river_leader WHERE expires_at > now()`)
	id, err := e.ask(leader)
	if err != nil {
		e.t.Fatal(err)
	}
	return id
}

// A forwarder with an older route file leads, so that River's rescue comes before the answers of a route that only the
// newer file has. Nothing is sent twice, discarded or failed; and what the older one does not know waits for one that does.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	answers := 60 * time.Second // longer than the older file's 22 s and one round of River's rescue
	if !full {
		answers = 40 * time.Second
	}
	e.receiver.Answer(func(r *receivertest.Request) receivertest.Answer {
		if r.Path == "/slow" {
			return receivertest.Status(200).After(answers)
		}
		return receivertest.Status(200)
	})
	older := e.forwarder(e.routesIn("old.yaml", oldFile))
	led := e.leads()
	e.ingester(e.routesIn("new.yaml", newFile))
	e.produce(0, 10, 1)
	e.is(patience, "20", `SELECT count(*)::text FROM ferry.messages`)
	e.is(patience, "10", delivered)
	e.is(patience, "10", `SELECT count(*)::text FROM ferry.deliveries WHERE route = 'slow' AND status = 'pending' AND requests = 0`)
	e.forwarder("FERRY_ROUTES=" + filepath.Join(e.dir, "new.yaml"))
	e.receiver.WaitCount(t, 20)
	if !full { // so that the next round of the rescue takes them, which is within 30 s
		if _, err := e.pool.Exec(t.Context(), `UPDATE ferry.river_job SET attempted_at = attempted_at - interval '22 s' WHERE queue = 'slow'`); err != nil {
			t.Fatal(err)
		}
	}
	// Each is rescued, runs again and waits, while its requests are still in flight.
	e.is(rescuePatience, "0", `SELECT count(*)::text FROM ferry.river_job WHERE queue = 'slow'
		AND NOT (state = 'scheduled' AND array_to_string(errors, '') LIKE '%rescued%' AND metadata ? 'snoozes')`)
	if now, _ := e.receiver.InFlight(); now == 0 {
		t.Error("the jobs were rescued after their requests had ended: the test shows nothing")
	}
	if got, _ := e.ask(leader); got != led {
		t.Errorf("the older forwarder does not lead any more: %s, %s", led, got)
	}
	e.is(rescuePatience, "20", delivered)
	if n := e.receiver.Count(); n != 20 {
		t.Errorf("%d requests for 20 messages", n)
	}
	e.is(patience, "0", `SELECT count(*)::text FROM ferry.deliveries WHERE attempts <> 1`)
	if !older.Running() {
		t.Error("the older forwarder has ended")
	}
}

// Forwarders that work other routes each: one leads, neither touches what is the other's, and each reconciles both, since
// both have both routes in their files.
func TestRouteNames(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	file := e.routesIn("new.yaml", newFile)
	e.ingester(file)
	e.produce(0, 20, 1)
	e.is(patience, "40", `SELECT count(*)::text FROM ferry.messages`)
	if _, err := e.pool.Exec(t.Context(), `DELETE FROM ferry.river_job WHERE queue = 'slow'`); err != nil {
		t.Fatal(err)
	}
	first := e.forwarder(file, "FERRY_ROUTE_NAMES=events")
	e.is(patience, "20", delivered)
	e.is(patience, "20", `SELECT count(*)::text FROM ferry.river_job WHERE queue = 'slow' AND state = 'available' AND args->>'own' = 'true'`)
	for _, r := range e.receiver.Requests() {
		if r.Path != "/events" {
			t.Fatalf("a route that the forwarder does not work: %s", r.Path)
		}
	}
	if code, _ := first.Term(patience); code != 0 {
		t.Errorf("the first forwarder ended with %d", code)
	}
	e.forwarder(file, "FERRY_ROUTE_NAMES=slow")
	e.is(patience, "40", delivered)
	if n := e.receiver.Count(); n != 40 {
		t.Errorf("%d requests for 40 messages", n)
	}
}

// A forwarder whose file lacks a route leaves its messages alone, with or without a job.
func TestReconcileLeavesUnknownRoutes(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	older, newer := e.routesIn("old.yaml", oldFile), e.routesIn("new.yaml", newFile)
	e.ingester(newer)
	e.produce(0, 20, 1)
	e.is(patience, "40", `SELECT count(*)::text FROM ferry.messages`)
	if _, err := e.pool.Exec(t.Context(), `DELETE FROM ferry.river_job`); err != nil {
		t.Fatal(err)
	}
	fw := e.forwarder(older)
	e.is(patience, "20", delivered)
	e.metric(fw, "ferry_reconciled_total", 20)
	e.is(patience, "20", `SELECT count(*)::text FROM ferry.message_status WHERE route = 'slow' AND status = 'pending'`)
	if code, _ := fw.Term(patience); code != 0 {
		t.Errorf("the forwarder ended with %d", code)
	}
	e.forwarder(newer)
	e.is(patience, "40", delivered)
}

// Only forwarders lead River's maintenance.
func TestIngesterNeverLeads(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	e.ingester()
	e.produce(0, 50, 1)
	e.is(patience, "50", `SELECT count(*)::text FROM ferry.messages`)
	if n, err := e.ask(`SELECT (SELECT count(*) FROM ferry.river_leader)::text || (SELECT count(*) FROM ferry.river_queue)`); err != nil || n != "00" {
		t.Errorf("with an ingester alone somebody leads or works queues: %s, %v", n, err)
	}
	e.forwarder()
	e.is(patience, e.leads(), `SELECT id FROM ferry.forwarders`)
	e.is(patience, "50", delivered)
}
