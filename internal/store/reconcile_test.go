package store_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
)

var routesAB = []string{"a", "b"}

func (f *fixture) look() {
	f.Helper()
	for more := true; more; {
		var err error
		if more, err = f.store.Look(f.Context()); err != nil {
			f.Fatal(err)
		}
	}
}

// orphans is what a round over failures and unsettled finds.
func (f *fixture) orphans(routes ...string) []store.Orphan {
	f.Helper()
	var all []store.Orphan
	for _, check := range []func() (*store.Checked, error){
		func() (*store.Checked, error) { return f.store.CheckFailures(f.Context(), routes) },
		func() (*store.Checked, error) { return f.store.CheckUnsettled(f.Context(), routes) },
	} {
		c, err := check()
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, c.Orphans...)
	}
	slices.SortFunc(all, func(a, b store.Orphan) int { return cmp.Compare(a.MessageID, b.MessageID) })
	return slices.CompactFunc(all, func(a, b store.Orphan) bool { return a.MessageID == b.MessageID })
}

// ripe makes the mark of the second look old enough.
func (f *fixture) ripe() {
	f.Helper()
	f.exec("UPDATE ferry.reconcile SET marked_at = now() - interval '1 hour'")
}

const finish = "UPDATE ferry.river_job SET state = $1, finalized_at = now()"

// A message with a lower id that is committed after a higher one was seen is found by the second look.
func TestLookSeesLateCommits(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	tx, err := f.store.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const insert = `WITH m AS (INSERT INTO ferry.messages (route, message_key, topic, topic_id, partition, "offset")
		VALUES ('a', 'late', 'events', '00000000-0000-0000-0000-000000000000', 7, 0) RETURNING id)
		INSERT INTO ferry.deliveries (message_id, route) SELECT id, 'a' FROM m`
	if _, err := tx.Exec(t.Context(), insert); err != nil {
		t.Fatal(err)
	}
	f.save(batch(0, 1))
	f.ripe()
	f.look() // sets the mark behind the second message
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.look()
	f.want("SELECT count(*) FROM ferry.unsettled", "1")
	f.ripe()
	f.look()
	f.want("SELECT array_agg(message_id ORDER BY message_id) FROM ferry.unsettled", "{1,2}")
	f.want("SELECT seen_to || ' ' || sure_to FROM ferry.reconcile", "2 2")
}

// Each state of the owning job, and what it is found as; routes that the file does not have are left alone.
func TestCheckUnsettled(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	f.save(batch(0, 12))
	states := []string{"available", "running", "scheduled", "retryable", "pending", "cancelled", "completed", "discarded"}
	for i, s := range states {
		finalized := "NULL"
		if i >= 5 {
			finalized = "now()"
		}
		f.exec("UPDATE ferry.river_job SET state = $1, finalized_at = "+finalized+" WHERE args -> 'ids' @> to_jsonb($2::bigint)", s, i+1)
	}
	f.exec("DELETE FROM ferry.river_job WHERE args -> 'ids' @> '9'")
	f.exec("UPDATE ferry.deliveries SET job_id = NULL WHERE message_id = 10")
	f.exec("UPDATE ferry.deliveries SET status = 'delivered', settled_at = now() WHERE message_id = 11")
	f.exec("DELETE FROM ferry.river_job WHERE args -> 'ids' @> '12'")
	f.exec("UPDATE ferry.deliveries SET route = 'unknown' WHERE message_id = 12")
	f.look()
	f.exec("UPDATE ferry.deliveries SET status = 'delivered', settled_at = now() WHERE message_id = 1")
	got := map[int64]store.Finding{}
	for _, o := range f.orphans(routesAB...) {
		got[o.MessageID] = o.Finding
	}
	want := map[int64]store.Finding{
		6: store.FoundCancelled, 7: store.FoundCompleted, 8: store.FoundDiscarded, 9: store.FoundMissing, 10: store.FoundMissing,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("found %v, want %v", got, want)
	}
	f.want("SELECT array_agg(message_id ORDER BY message_id) FROM ferry.unsettled", "{2,3,4,5,6,7,8,9,10,12}")
}

// Orphans get jobs of their own, at the time that they wait for; those of cancelled jobs fail, and both once.
func TestRepairOrphans(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.save(batch(0, 6))
	its := f.items()
	f.settle(outcome(its[5], message.StatusPending)) // leaves for a job of its own
	f.look()
	f.exec("UPDATE ferry.deliveries SET next_attempt_at = '2100-01-01' WHERE message_id = 2")
	f.exec(finish, "discarded")
	found := f.orphans(routesAB...)
	done, err := f.store.Rehome(t.Context(), found, "f1")
	if err != nil || len(done) != 6 {
		t.Fatal(done, err)
	}
	f.want("SELECT count(DISTINCT job_id) FROM ferry.deliveries", "6")
	f.want(`SELECT array_agg(j.state ORDER BY d.message_id) FROM ferry.deliveries d JOIN ferry.river_job j ON j.id = d.job_id
		WHERE (j.args ->> 'own')::bool AND j.args ->> 'bytes' = '7'`, "{available,scheduled,available,available,available,scheduled}")
	if again, err := f.store.Rehome(t.Context(), found, "f1"); err != nil || len(again) != 0 {
		t.Error("a second repair changed something:", again, err)
	}
	if left := f.orphans(routesAB...); len(left) != 0 {
		t.Error("still found:", left)
	}
	f.exec(finish, "cancelled")
	failed, err := f.store.FailCancelled(t.Context(), f.orphans(routesAB...), "f1")
	if err != nil || len(failed) != 6 {
		t.Fatal(failed, err)
	}
	f.want("SELECT string_agg(DISTINCT status || ' ' || reason || ' ' || detail, ',') FROM ferry.deliveries", "failed cancelled its job was cancelled")
	f.want("SELECT count(*) FROM ferry.river_job WHERE errors[1] ->> 'error' LIKE 'ferry: cancelled%'", "6")
	f.talliesHold()
	f.ledgerHolds()
	f.want("SELECT count(*) FROM ferry.unsettled", "6")
	f.orphans(routesAB...)
	f.want("SELECT count(*) FROM ferry.unsettled", "0")
}

// A cancelled group: each message fails, with a job of its own that is there to show it.
func TestCancelledGroupFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.save(batch(0, 3))
	f.look()
	f.exec(finish, "cancelled")
	if done, err := f.store.FailCancelled(t.Context(), f.orphans(routesAB...), "f1"); err != nil || len(done) != 3 {
		t.Fatal(done, err)
	}
	f.want("SELECT count(*) FROM ferry.deliveries d JOIN ferry.river_job j ON j.id = d.job_id WHERE j.state = 'available' AND (j.args ->> 'own')::bool AND d.status = 'failed'", "3")
	f.talliesHold()
	f.ledgerHolds()
}

// A message that fails because its job was cancelled has its dead letter, like any other failure.
func TestCancelledIsDeadLettered(t *testing.T) {
	t.Parallel()
	f := withDeadLetters(t)
	f.save(batch(0, 2))
	f.look()
	f.exec(finish, "cancelled")
	if done, err := f.store.FailCancelled(t.Context(), f.orphans(routesAB...), "f1"); err != nil || len(done) != 2 {
		t.Fatal(done, err)
	}
	f.want(deadLetterJobs, "2")
	if l := f.letters()[1]; l.Reason != "cancelled" || l.Detail != "its job was cancelled" {
		t.Errorf("%+v", l)
	}
}

// Between finding an orphan and repairing it, somebody else may take it up.
func TestRepairLeavesWhatChanged(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(f *fixture, its []*store.Item){
		"the job was retried": func(f *fixture, _ []*store.Item) {
			f.exec("UPDATE ferry.river_job SET state = 'running', finalized_at = NULL")
		},
		"it was delivered": func(f *fixture, its []*store.Item) {
			f.settle(outcome(its[0], message.StatusDelivered))
		},
		"it left for a job of its own": func(f *fixture, its []*store.Item) {
			f.settle(outcome(its[0], message.StatusPending))
		},
	} {
		for _, state := range []string{"cancelled", "discarded"} {
			t.Run(name+", "+state, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, 1)
				f.save(batch(0, 1))
				its := f.items()
				f.look()
				f.exec(finish, state)
				found := f.orphans(routesAB...)
				if len(found) != 1 {
					t.Fatal(found)
				}
				change(f, its)
				const story = "SELECT (SELECT string_agg(d::text, ',') FROM ferry.deliveries d) || (SELECT count(*) FROM ferry.river_job)"
				before := f.value(story)
				repair := f.store.Rehome
				if state == "cancelled" {
					repair = f.store.FailCancelled
				}
				if done, err := repair(t.Context(), found, "f1"); err != nil || len(done) != 0 {
					t.Errorf("%+v, %v", done, err)
				}
				if after := f.value(story); after != before {
					t.Errorf("changed:\n%s\n%s", before, after)
				}
				f.talliesHold()
			})
		}
	}
}

// While an orphan is repaired its ended job is locked, so that a retry by hand comes after it.
func TestRepairLocksTheJob(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"cancelled", "discarded"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 1)
			f.save(batch(0, 1))
			f.look()
			f.exec(finish, state)
			found := f.orphans(routesAB...)
			retry, err := f.store.Pool().Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := retry.Exec(t.Context(), "UPDATE ferry.river_job SET state = 'available', finalized_at = NULL"); err != nil {
				t.Fatal(err)
			}
			done := make(chan []store.Repaired, 1)
			go func() {
				repair := f.store.Rehome
				if state == "cancelled" {
					repair = f.store.FailCancelled
				}
				d, err := repair(t.Context(), found, "f1")
				if err != nil {
					t.Error(err)
				}
				done <- d
			}()
			f.eventually("the repair to wait for the retry", func() bool {
				return f.value("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == "1"
			})
			if err := retry.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if d := <-done; len(d) != 0 {
				t.Errorf("repaired although the job was retried: %+v", d)
			}
			f.want("SELECT status FROM ferry.deliveries", "pending")
		})
	}
}

// A failed message made pending by SQL starts anew, whatever its job is; sums and failures follow.
func TestRepairedBySQL(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	f.save(batch(0, 4))
	its := f.items()
	f.settle(outcome(its[0], message.StatusFailed), outcome(its[1], message.StatusFailed), outcome(its[2], message.StatusFailed), outcome(its[3], message.StatusFailed))
	f.exec("UPDATE ferry.river_job SET state = CASE id % 2 WHEN 0 THEN 'cancelled'::ferry.river_job_state ELSE 'discarded' END, finalized_at = now() WHERE args ->> 'own' = 'true'")
	f.exec("UPDATE ferry.deliveries SET due_from = '2020-01-01'")
	const repair = "UPDATE ferry.deliveries SET status = $1, reason = NULL, settled_at = CASE WHEN $1 = 'pending' THEN NULL ELSE now() END WHERE message_id = ANY($2)"
	f.exec(repair, "pending", []int64{1, 2})
	f.exec(repair, "delivered", []int64{3})
	f.exec("UPDATE ferry.tallies SET delivered = delivered + 1 WHERE slot = (SELECT min(slot) FROM ferry.tallies)") // as its job would have
	found := f.orphans(routesAB...)
	done, err := f.store.Rehome(t.Context(), found, "f2")
	if err != nil || len(done) != 3 {
		t.Fatal(found, done, err)
	}
	f.want("SELECT array_agg(status || ' ' || attempts ORDER BY message_id) FROM ferry.deliveries", `{"pending 0","pending 0","delivered 1","failed 1"}`)
	f.want("SELECT count(*) FROM ferry.deliveries WHERE due_from > now() - interval '1 minute'", "2")
	f.want("SELECT array_agg(message_id ORDER BY message_id) FROM ferry.failures", "{4}")
	f.want("SELECT array_agg(message_id ORDER BY message_id) FROM ferry.unsettled", "{1,2}")
	f.want("SELECT count(*) FROM ferry.deliveries d JOIN ferry.river_job j ON j.id = d.job_id WHERE d.status = 'pending' AND j.state = 'available'", "2")
	f.talliesHold()
	f.ledgerHolds()
	if left := f.orphans(routesAB...); len(left) != 0 {
		t.Error("still found:", left)
	}
}

func TestReopen(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	f.save(batch(0, 2))
	its := f.items()
	settled := f.settle(outcome(its[0], message.StatusFailed), outcome(its[1], message.StatusDelivered))
	for what, of := range map[string][2]int64{"another job's": {1, its[0].JobID}, "delivered": {2, its[1].JobID}, "gone": {99, 1}} {
		if due, err := f.store.Reopen(t.Context(), of[0], of[1], "f1"); err != nil || !due.IsZero() {
			t.Errorf("%s: %v, %v", what, due, err)
		}
	}
	f.talliesHold()
	due, err := f.store.Reopen(t.Context(), 1, settled[0].JobID, "f2")
	if err != nil || time.Since(due).Abs() > time.Minute {
		t.Fatal(due, err)
	}
	f.want("SELECT status || ' ' || attempts || ' ' || requests || ' ' || (due_from > settled_at IS NOT FALSE) FROM ferry.deliveries WHERE message_id = 1", "pending 0 1 true")
	f.want("SELECT count(*) FROM ferry.failures", "0")
	f.want("SELECT array_agg(message_id) FROM ferry.unsettled", "{1}")
	f.talliesHold()
	f.ledgerHolds()
	if due, err := f.store.Reopen(t.Context(), 1, settled[0].JobID, "f2"); err != nil || !due.IsZero() {
		t.Errorf("again: %v, %v", due, err)
	}
}

// A replay puts a message into unsettled again just when reconcile takes it out, since it was failed.
func TestReplayWhileChecked(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	f.save(batch(0, 1))
	f.look()
	f.settle(outcome(f.items()[0], message.StatusFailed))
	replay, err := f.store.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replay.Exec(t.Context(), `INSERT INTO ferry.unsettled (message_id) VALUES (1)
		ON CONFLICT (message_id) DO UPDATE SET added_at = clock_timestamp()`); err != nil {
		t.Fatal(err)
	}
	checked := make(chan error, 1)
	go func() {
		_, err := f.store.CheckUnsettled(t.Context(), routesAB)
		checked <- err
	}()
	f.eventually("the check to wait for the replay", func() bool {
		return f.value("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == "1"
	})
	if err := replay.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-checked; err != nil {
		t.Fatal(err)
	}
	f.want("SELECT count(*) FROM ferry.unsettled", "1")
}

// What an earlier run may still do, by the times that forwarders say of themselves.
func TestRunningBefore(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	for id, rescue := range map[string]int{"old": 40, "new": 100, "new2": 100} {
		if err := f.store.Heartbeat(t.Context(), store.Forwarder{ID: id, RescueAfter: time.Duration(rescue) * time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	is := func(what string, want time.Duration, since time.Duration, runners ...string) {
		t.Helper()
		now, err := f.store.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.store.RunningBefore(t.Context(), runners, now.Add(-since))
		if err != nil || (got-want).Abs() > 5*time.Second {
			t.Errorf("%s: %v, %v; want %v", what, got, err, want)
		}
	}
	is("the newer one ran it", time.Minute, 0, "new")
	is("it is half over", 30*time.Second, 30*time.Second, "new")
	is("it is over", 0, 2*time.Minute, "new")
	is("the older one ran it", 0, 0, "old")
	is("the newer one ran it before the older one", time.Minute, 0, "new", "old")
	is("nobody knows who ran it", 0, 0, "gone")
	f.exec("DELETE FROM ferry.forwarders WHERE id = 'old'")
	is("all have one file", 0, 0, "new", "new2")
	f.exec("INSERT INTO ferry.forwarders (id, version, routes) VALUES ('older', 'v0', '{}')")
	is("one does not say its time", 100*time.Second, 0, "new")
	f.exec("UPDATE ferry.forwarders SET seen_at = now() - interval '1 hour' WHERE id = 'older'")
	is("that one had gone long before", 0, 0, "new")
}

// However large the history is, no statement reads it whole.
func TestReconcileReadsNoTableWhole(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	const n = 40_000
	f.exec(`INSERT INTO ferry.messages (route, message_key, topic, topic_id, partition, "offset")
		SELECT 'a', 'k' || i, 'events', '00000000-0000-0000-0000-000000000000', 1, i FROM generate_series(1, $1::int) AS i`, n)
	f.exec(`INSERT INTO ferry.deliveries (message_id, route, status, settled_at)
		SELECT id, 'a', CASE WHEN id % 8 = 0 THEN 'pending' ELSE 'delivered' END, CASE WHEN id % 8 = 0 THEN NULL ELSE now() END FROM ferry.messages`)
	f.exec(`INSERT INTO ferry.failures (message_id, route, reason) SELECT id, 'a', 'rejected' FROM ferry.messages WHERE id % 16 = 1`)
	f.exec("ANALYZE ferry.messages, ferry.deliveries, ferry.failures, ferry.river_job")
	stat := func(what string) string {
		return f.value("SELECT sum(" + what + ") FROM pg_stat_user_tables WHERE schemaname = 'ferry' AND relname IN ('deliveries', 'messages')")
	}
	f.eventually("the statistics to arrive", func() bool {
		return stat("seq_scan") == "2" // the two INSERTs above
	})
	whole, rows := stat("seq_scan"), stat("idx_scan")
	f.look()
	found := f.orphans(routesAB...)
	if len(found) != 5000+2500 {
		t.Errorf("%d found", len(found))
	}
	for len(found) > 0 {
		if _, err := f.store.Rehome(t.Context(), found[:500], "f1"); err != nil {
			t.Fatal(err)
		}
		found = found[500:]
	}
	f.want("SELECT count(*) FROM ferry.river_job", "5000")
	f.eventually("the statistics to arrive", func() bool { return stat("idx_scan") != rows })
	f.eventually("all of them", func() bool {
		return f.value("SELECT n_tup_upd >= 5000 FROM pg_stat_user_tables WHERE relid = 'ferry.deliveries'::regclass") == "true"
	})
	if now := stat("seq_scan"); now != whole {
		t.Errorf("tables were read whole %s times, before %s", now, whole)
	}
}
