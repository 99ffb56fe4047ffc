package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

type replayResult struct{ Matched, Replayed int }

// replay runs the command to its end.
func (e *env) replay(args ...string) (r replayResult) {
	e.t.Helper()
	stdout, stderr, code := proctest.Run(e.t, binaries.Path(e.t, "forwarder"), e.common(), append([]string{"replay", "--json", "--yes"}, args...)...)
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != 0 {
		e.t.Fatalf("replay %v: exit %d, %v\n%s%s", args, code, err, stdout, stderr)
	}
	return r
}

const replayedByNow = `SELECT COALESCE(sum(replayed), 0)::text FROM ferry.replays`

// A replay of many failed messages is killed twice, once inside a transaction and once between two, and run again: each
// message is sent by it exactly once.
func TestReplayKilled(t *testing.T) {
	t.Parallel()
	n := 5_000
	if full {
		n = 50_000
	}
	e := newEnv(t, kafkatest.Fake(t), 1)
	e.receiver.Always(receivertest.Status(400))
	for from := 0; from < n; from += 500 {
		e.save(from, values(500)...)
	}
	e.forwarder("FERRY_LOG_LEVEL=error")
	e.is(rescuePatience, fmt.Sprint(n), `SELECT count(*)::text FROM ferry.failures`)
	e.receiver.Forget()
	e.receiver.Always(receivertest.Status(200))
	start := func(args ...string) *proctest.Proc {
		return proctest.Start(t, binaries.Path(t, "forwarder"), e.common(), append([]string{"replay", "--route", "events", "--since", "1h", "--yes"}, args...)...)
	}

	release := e.lock(`SELECT FROM ferry.deliveries WHERE message_id = (SELECT min(message_id) + 1200 FROM ferry.deliveries) FOR UPDATE`)
	p := start()
	e.is(patience, "1000", replayedByNow)
	e.blocked() // in the third transaction
	p.Kill()
	release()

	p = start("--rate", "500")
	e.is(patience, "2000", replayedByNow) // it waits for its next second
	p.Kill()
	if !strings.Contains(p.Log(), "1000 messages are done: it goes on behind them") {
		t.Errorf("it does not say that it goes on:\n%s", p.Log())
	}

	begin := time.Now()
	if r := e.replay("--since", "1h", "--route", "events"); r.Matched != n-2000 || r.Replayed != n-2000 {
		t.Errorf("%+v, want the %d that were left", r, n-2000)
	}
	t.Logf("%d messages replayed in %v", n-2000, time.Since(begin))
	e.is(rescuePatience, fmt.Sprint(n), delivered)
	got := e.receiver.CountByKey()
	for i := range n {
		if c := got[fmt.Sprintf("m%d", i)]; c != 1 {
			t.Errorf("m%d was sent %d times by the replay", i, c)
		}
	}
	e.is(patience, "1 1", `SELECT count(*) || ' ' || count(finished_at) FROM ferry.replays`)
	e.replaysBalance()
}

// A message that is replayed twice is sent twice, each time with attempts of its own; its Idempotency-Key stays, unless a
// new one is asked for, and is then the same in all attempts.
func TestReplayAgain(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	e.save(0, values(2)...)
	e.forwarder()
	e.is(patience, "2", delivered)
	one := func(args ...string) {
		t.Helper()
		if r := e.replay(append([]string{"key:m0", "--status", "delivered"}, args...)...); r.Matched != 1 || r.Replayed != 1 {
			t.Errorf("%v: %+v", args, r)
		}
		e.is(patience, "2", delivered)
	}
	one()
	one()
	e.receiver.Forget()
	e.receiver.On("m0#r1", receivertest.Status(500), receivertest.Status(500), receivertest.Status(200))
	one("--new-key")
	one()
	one("--new-key")
	var keys []string
	for _, req := range e.receiver.Requests() {
		keys = append(keys, req.Header.Get("Idempotency-Key"))
	}
	if got := strings.Join(keys, " "); got != "events/m0#r1 events/m0#r1 events/m0#r1 events/m0#r1 events/m0#r2" {
		t.Errorf("keys on the wire: %s", got)
	}
	e.is(patience, "1 8", `SELECT attempts || ' ' || requests FROM ferry.deliveries WHERE message_id = 1`)
	e.is(patience, "1-8", `SELECT min(attempt) || '-' || max(attempt) FROM ferry.attempts WHERE message_id = 1`)
	e.replaysBalance()
}

// A database that stalls in the middle ends a replay within ten seconds or so, which says how to go on; then each message is
// replayed once, whatever became of the transaction whose answer got lost.
func TestReplayDatabaseStalls(t *testing.T) {
	t.Parallel()
	const n = 2_000
	e := newEnv(t, kafkatest.Fake(t), 1)
	for from := 0; from < n; from += 500 {
		e.save(from, values(500)...)
	}
	for _, q := range []string{
		`UPDATE ferry.deliveries SET status = 'failed', reason = 'rejected', settled_at = now()`,
		`INSERT INTO ferry.failures (message_id, route, reason) SELECT message_id, route, reason FROM ferry.deliveries`,
		`INSERT INTO ferry.tallies (slot, route, delivered, failed) VALUES (0, 'events', 0, 2000)`,
		`DELETE FROM ferry.river_job`,
	} {
		if _, err := e.pool.Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	g, db := e.gate()
	args := []string{"replay", "--route", "events", "--yes"}
	p := proctest.Start(t, binaries.Path(t, "forwarder"), append(e.common(), "FERRY_DATABASE_URL="+db), append(args, "--rate", "300")...)
	e.is(patience, "300", replayedByNow)
	reopen := g.shut()
	shut := time.Now()
	if code := p.Wait(patience); code != 3 || !strings.Contains(p.Log(), "messages are replayed, run the same again to go on") {
		t.Errorf("exit %d\n%s", code, p.Log())
	}
	if took := time.Since(shut); took > 20*time.Second {
		t.Errorf("it ended after %v", took)
	}
	reopen()
	// What was under way may still come to its end.
	e.is(patience, "0", `SELECT count(*)::text FROM pg_stat_activity WHERE application_name = 'ferry-replay' AND datname = current_database() AND state <> 'idle'`)
	done, err := e.ask(replayedByNow)
	if err != nil {
		t.Fatal(err)
	}
	var before int
	_, _ = fmt.Sscan(done, &before)
	if r := e.replay("--route", "events"); r.Replayed != n-before || before < 300 {
		t.Errorf("%+v after %d", r, before)
	}
	e.is(patience, "2000 2000", `SELECT count(*) || ' ' || count(DISTINCT args -> 'ids') FROM ferry.river_job`)
	e.is(patience, "2000", `SELECT count(*)::text FROM ferry.deliveries d JOIN ferry.river_job j ON j.id = d.job_id WHERE d.status = 'pending'`)
	e.is(patience, "1", `SELECT count(*)::text FROM ferry.replays`)
}

// replaysBalance compares the sums with the rows.
func (e *env) replaysBalance() {
	e.t.Helper()
	e.is(patience, "0", `SELECT abs((SELECT sum(delivered) FROM ferry.tallies) - (SELECT count(*) FROM ferry.deliveries WHERE status = 'delivered'))::text`)
	e.is(patience, "0", `SELECT abs((SELECT sum(failed) FROM ferry.tallies) - (SELECT count(*) FROM ferry.failures))::text`)
	e.is(patience, "0", `SELECT count(*)::text FROM ferry.deliveries d FULL JOIN ferry.failures f USING (message_id) WHERE (d.status = 'failed') <> (f.message_id IS NOT NULL)`)
	e.is(patience, "0", `SELECT count(*)::text FROM ferry.river_job WHERE kind = 'forward' AND state IN ('available', 'running', 'scheduled', 'retryable')`)
}
