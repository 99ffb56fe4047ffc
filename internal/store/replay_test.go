package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

var failedOnes = store.ReplayFilter{Status: message.StatusFailed, Routes: routesAB}

// replaySettled stores n messages of route a and settles them all as the status.
func (f *fixture) replaySettled(n int64, status message.Status) {
	f.Helper()
	f.save(batch(0, n))
	var all []store.Outcome
	for _, it := range f.items() {
		all = append(all, outcome(it, status))
	}
	f.settle(all...)
}

func (f *fixture) selection(filter store.ReplayFilter) *store.ReplaySelection {
	f.Helper()
	sel, err := f.store.SelectReplay(f.Context(), filter)
	if err != nil {
		f.Fatal(err)
	}
	return sel
}

func (f *fixture) counted(filter store.ReplayFilter, r *store.Replay) *store.ReplayCount {
	f.Helper()
	c, err := f.store.CountReplay(f.Context(), f.selection(filter), r)
	if err != nil {
		f.Fatal(err)
	}
	return c
}

func (f *fixture) beginReplay(text string, anew bool) *store.Replay {
	f.Helper()
	r, err := f.store.BeginReplay(f.Context(), text, anew)
	if err != nil {
		f.Fatal(err)
	}
	return r
}

func (f *fixture) step(id int64, filter store.ReplayFilter, limit int) store.ReplayStep {
	f.Helper()
	step, err := f.store.StepReplay(f.Context(), id, f.selection(filter), limit)
	if err != nil {
		f.Fatal(err)
	}
	f.ledgerHolds()
	f.talliesHold()
	return step
}

// replayAll replays what the filter matches, and returns how many.
func (f *fixture) replayAll(filter store.ReplayFilter) (n int) {
	f.Helper()
	for id := f.beginReplay("all", true).ID; ; {
		step := f.step(id, filter, store.MaxReplayStep)
		if n += step.Replayed; step.Finished {
			return n
		}
	}
}

// A replay that is begun again after each of its transactions, and after one that failed at its last statement, replays
// each message once: with a job of its own, its attempts begun anew, and all sums right at each moment.
func TestReplayGoesOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	b := batch(0, 8)
	b.Incoming[6].Result = message.IngestUnstorable
	conflict := incoming("a", "key-0", record(8, "other"))
	b.Incoming = append(b.Incoming, conflict)
	b.Advances[0].To = 9
	f.save(b)
	its := f.items()
	f.settle(outcome(its[0], message.StatusFailed), outcome(its[1], message.StatusDelivered), outcome(its[2], message.StatusPending),
		outcome(its[3], message.StatusFailed), outcome(its[4], message.StatusFailed))
	f.exec("UPDATE ferry.deliveries SET dead_lettered_at = now(), due_from = now() - interval '1 hour' WHERE status = 'failed'")
	f.look()
	f.exec("DELETE FROM ferry.unsettled")
	c := f.counted(failedOnes, nil)
	if fmt.Sprint(c.Routes, c.Unstorable, c.Newest) != "map[a:4] 1 [1 4 5 9]" {
		t.Errorf("counted %v, unstorable %d, newest %v", c.Routes, c.Unstorable, c.Newest)
	}
	before := f.value("SELECT array_agg(job_id ORDER BY message_id) FROM ferry.deliveries WHERE message_id IN (1, 4, 5, 9)")
	f.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '57P01'; END $$`)
	var first *store.Replay
	for i := range 5 { // 4 messages, the unstorable one, and nothing more
		r := f.beginReplay("all", false)
		if first == nil {
			first = r
		}
		if r.ID != first.ID || !r.StartedAt.Equal(first.StartedAt) || r.UpTo != 9 {
			t.Fatalf("%d: went on with %+v, not with %+v", i, r, first)
		}
		if left := f.counted(failedOnes, r).Matched(); left != 4-r.Replayed {
			t.Errorf("%d: %d left, %d replayed", i, left, r.Replayed)
		}
		f.exec(`CREATE TRIGGER refuse BEFORE UPDATE OF done_to ON ferry.replays FOR EACH ROW EXECUTE FUNCTION refuse()`)
		var e *store.Error
		if _, err := f.store.StepReplay(t.Context(), r.ID, f.selection(failedOnes), 1); !errors.As(err, &e) || !e.Transient() {
			t.Fatalf("%d: %v", i, err)
		}
		f.exec(`DROP TRIGGER refuse ON ferry.replays`)
		f.ledgerHolds()
		f.talliesHold()
		f.want("SELECT count(*) FROM ferry.deliveries WHERE status = 'failed'", fmt.Sprint(5-r.Replayed))
		if step := f.step(r.ID, failedOnes, 1); step.Finished || step.Gone {
			t.Fatalf("%d: %+v", i, step)
		}
	}
	if step := f.step(first.ID, failedOnes, 1); !step.Finished || step.Replayed != 0 {
		t.Errorf("behind the last: %+v", step)
	}
	f.want("SELECT replayed || ' ' || done_to || ' ' || (finished_at IS NOT NULL) FROM ferry.replays", "4 9 true")
	f.want(`SELECT array_agg(message_id || ' ' || attempts || ' ' || requests || ' ' || key_revision ORDER BY message_id) FROM ferry.deliveries
		WHERE status = 'pending' AND due_from > now() - interval '1 minute' AND reason IS NULL AND detail IS NULL AND next_attempt_at IS NULL
		AND settled_at IS NULL AND dead_lettered_at IS NULL AND message_id IN (1, 4, 5, 9)`, `{"1 0 1 0","4 0 1 0","5 0 1 0","9 0 0 0"}`)
	f.want("SELECT array_agg(message_id ORDER BY message_id) FROM ferry.unsettled", "{1,4,5,9}")
	f.want("SELECT array_agg(message_id) FROM ferry.failures", "{7}")
	f.want(`SELECT array_agg(j.state || ' ' || (j.args ->> 'own') || ' ' || (j.args ->> 'key') || ' ' || (j.args ->> 'bytes') ORDER BY d.message_id)
		FROM ferry.river_job j JOIN ferry.deliveries d ON d.job_id = j.id WHERE d.message_id IN (1, 4, 9)`,
		fmt.Sprintf(`{"available true key-0 7","available true key-3 7","available true key-0#%s 5"}`, pos(8).Key()))
	if after := f.value("SELECT array_agg(job_id ORDER BY message_id) FROM ferry.deliveries WHERE message_id IN (1, 4, 5, 9)"); after == before {
		t.Error("no message has a new job")
	}
	if r := f.beginReplay("all", false); r.ID == first.ID {
		t.Error("a finished replay goes on")
	}
}

// A message is sent twice when it is replayed twice; with a new key each time if that is asked for.
func TestReplayTwice(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.replaySettled(3, message.StatusFailed)
	for round, newKey := range []bool{true, false, true} {
		filter := failedOnes
		filter.NewKey = newKey
		if n := f.replayAll(filter); n != 3 {
			t.Fatalf("round %d: %d replayed", round, n)
		}
		its := f.items()
		for _, it := range its {
			if want := []int{1, 1, 2}[round]; it.KeyRevision != want || it.Attempts != 0 || it.Requests != round+1 {
				t.Errorf("round %d: revision %d, want %d; %d attempts, %d requests", round, it.KeyRevision, want, it.Attempts, it.Requests)
			}
			o := outcome(it, message.StatusFailed)
			o.Own = true
			f.settle(o)
		}
	}
	f.want("SELECT array_agg(n) FROM (SELECT count(*) AS n FROM ferry.attempts GROUP BY message_id) a", "{4,4,4}")
}

// What was settled after a replay began is not part of it, though it lies behind it.
func TestReplayLeavesWhatSettledLater(t *testing.T) {
	t.Parallel()
	for _, status := range []message.Status{message.StatusFailed, message.StatusDelivered} {
		t.Run(status.String(), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 20)
			f.save(batch(0, 4))
			its := f.items()
			f.settle(outcome(its[0], status), outcome(its[2], status))
			r := f.beginReplay("all", false)
			f.settle(outcome(its[1], status))
			f.save(batch(4, 1))
			f.settle(outcome(f.items()[4], status))
			filter := store.ReplayFilter{Status: status, Routes: []string{"a"}}
			if n := f.counted(filter, r).Matched(); n != 2 {
				t.Errorf("%d counted", n)
			}
			if step := f.step(r.ID, filter, 10); step.Replayed != 2 || !step.Finished {
				t.Errorf("%+v", step)
			}
			f.want("SELECT array_agg(message_id ORDER BY message_id) FROM ferry.deliveries WHERE status = '"+status.String()+"'", "{2,5}")
			f.want("SELECT done_to FROM ferry.replays", "4")
		})
	}
}

// Delivered messages are replayed when that is asked for, with the sums taken back; failed ones are left.
func TestReplayDelivered(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.save(batch(0, 6))
	its := f.items()
	f.settle(outcome(its[0], message.StatusDelivered), outcome(its[2], message.StatusDelivered), outcome(its[3], message.StatusFailed),
		outcome(its[5], message.StatusDelivered))
	filter := store.ReplayFilter{Status: message.StatusDelivered, Routes: []string{"a"}}
	if c := f.counted(filter, nil); fmt.Sprint(c.Routes, c.Newest) != "map[a:3] [1 3 6]" {
		t.Errorf("%+v", c)
	}
	r := f.beginReplay("delivered", false)
	for i, want := range []store.ReplayStep{{Replayed: 2}, {Replayed: 1, Finished: true}, {Finished: true, Gone: true}} {
		if step := f.step(r.ID, filter, 2); step != want {
			t.Errorf("step %d: %+v, want %+v", i, step, want)
		}
	}
	f.want("SELECT array_agg(message_id || ' ' || status ORDER BY message_id) FROM ferry.deliveries",
		`{"1 pending","2 pending","3 pending","4 failed","5 pending","6 pending"}`)
	if n := f.replayAll(store.ReplayFilter{Status: message.StatusDelivered, Routes: []string{"b"}}); n != 0 {
		t.Errorf("%d of another route", n)
	}
}

// Filters by route, reason and time; times exactly, although the order of ids is about that of times only.
func TestReplayFilters(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	b := batch(0, 40)
	for i := range b.Incoming {
		if i%4 == 0 {
			b.Incoming[i].Route = "b"
		}
	}
	f.save(b)
	var all []store.Outcome
	for i, it := range f.items() {
		o := outcome(it, message.StatusFailed)
		if i%2 == 1 {
			o.Reason = message.Expired
		}
		all = append(all, o)
	}
	f.settle(all...)
	// A minute apart, and each second one half a minute earlier than the one before.
	f.exec(`UPDATE ferry.messages SET received_at = '2026-01-01T00:00:00Z'::timestamptz + id * interval '1 minute' - (id % 2) * interval '90 s'`)
	at := func(minute float64) time.Time {
		return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(minute * float64(time.Minute)))
	}
	for name, c := range map[string]struct {
		filter store.ReplayFilter
		where  string
	}{
		"route":    {store.ReplayFilter{Routes: []string{"b"}}, "d.route = 'b'"},
		"reason":   {store.ReplayFilter{Routes: routesAB, Reasons: []message.Reason{message.Expired}}, "d.reason = 'expired'"},
		"since":    {store.ReplayFilter{Routes: routesAB, Since: at(20)}, "m.received_at >= '2026-01-01T00:20Z'"},
		"until":    {store.ReplayFilter{Routes: routesAB, Until: at(20)}, "m.received_at < '2026-01-01T00:20Z'"},
		"between":  {store.ReplayFilter{Routes: routesAB, Since: at(7.5), Until: at(31)}, "m.received_at >= '2026-01-01T00:07:30Z' AND m.received_at < '2026-01-01T00:31Z'"},
		"before":   {store.ReplayFilter{Routes: routesAB, Until: at(-60)}, "false"},
		"after":    {store.ReplayFilter{Routes: routesAB, Since: at(600)}, "false"},
		"no route": {store.ReplayFilter{}, "false"},
		"all of it": {
			store.ReplayFilter{Routes: []string{"a"}, Reasons: []message.Reason{message.Rejected}, Since: at(5), Until: at(30)},
			"d.route = 'a' AND d.reason = 'rejected' AND m.received_at >= '2026-01-01T00:05Z' AND m.received_at < '2026-01-01T00:30Z'",
		},
	} {
		c.filter.Status = message.StatusFailed
		want := f.value("SELECT count(*) FROM ferry.messages m JOIN ferry.deliveries d ON d.message_id = m.id WHERE " + c.where)
		if got := fmt.Sprint(f.counted(c.filter, nil).Matched()); got != want {
			t.Errorf("%s: %s counted, want %s", name, got, want)
		}
		c.filter.Status = message.StatusDelivered
		if got := f.counted(c.filter, nil).Matched(); got != 0 {
			t.Errorf("%s: %d delivered", name, got)
		}
	}
	filter := store.ReplayFilter{Status: message.StatusFailed, Routes: routesAB, Since: at(7.5), Until: at(31)}
	want := f.counted(filter, nil).Matched()
	if n := f.replayAll(filter); int64(n) != want || n == 0 {
		t.Errorf("%d replayed, %d counted", n, want)
	}
	f.want(`SELECT count(*) FROM ferry.messages m JOIN ferry.deliveries d ON d.message_id = m.id
		WHERE (d.status = 'pending') <> (m.received_at >= '2026-01-01T00:07:30Z' AND m.received_at < '2026-01-01T00:31Z')`, "0")
}

// Only the same filter goes on, within 24 hours, and not when it is told to begin anew, which ends the other.
func TestBeginReplay(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.replaySettled(4, message.StatusFailed)
	first := f.beginReplay("--route a", false)
	f.step(first.ID, failedOnes, 1)
	if r := f.beginReplay("--route b", false); r.ID == first.ID {
		t.Error("another filter goes on")
	}
	if r, err := f.store.UnfinishedReplay(t.Context(), "--route a"); err != nil || r == nil || r.ID != first.ID || r.DoneTo != 1 || r.Replayed != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	anew := f.beginReplay("--route a", true)
	if anew.ID == first.ID {
		t.Error("did not begin anew")
	}
	if step := f.step(first.ID, failedOnes, 10); !step.Gone || !step.Finished || step.Replayed != 0 {
		t.Errorf("the one that was ended: %+v", step)
	}
	if r := f.beginReplay("--route a", false); r.ID != anew.ID {
		t.Errorf("went on with %d, want %d", r.ID, anew.ID)
	}
	f.exec("UPDATE ferry.replays SET updated_at = now() - interval '25 hours'")
	if r, err := f.store.UnfinishedReplay(t.Context(), "--route a"); err != nil || r != nil {
		t.Errorf("of yesterday: %+v, %v", r, err)
	}
	if r := f.beginReplay("--route a", false); r.ID == anew.ID {
		t.Error("one of yesterday goes on")
	}
	f.exec("UPDATE ferry.replays SET updated_at = now() - interval '31 days'")
	f.beginReplay("--route c", false)
	f.want("SELECT count(*) FROM ferry.replays", "1")
}

// Two processes with one filter begin at once, and each message is replayed by one of them.
func TestReplayShared(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.replaySettled(300, message.StatusFailed)
	var replayed atomic.Int64
	var procs sync.WaitGroup
	for range 4 {
		s := open(t, store.Config{URL: f.url})
		procs.Go(func() {
			r, err := s.BeginReplay(t.Context(), "all", false)
			if err != nil {
				t.Error(err)
				return
			}
			sel, err := s.SelectReplay(t.Context(), failedOnes)
			for step := (store.ReplayStep{}); err == nil && !step.Finished; {
				step, err = s.StepReplay(t.Context(), r.ID, sel, 20)
				replayed.Add(int64(step.Replayed))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	procs.Wait()
	if n := replayed.Load(); n != 300 {
		t.Errorf("%d replayed", n)
	}
	// One that begins when the others are through finds nothing, in a replay of its own.
	f.want("SELECT count(*) FROM ferry.replays WHERE replayed > 0", "1")
	f.want("SELECT count(*) || ' ' || count(DISTINCT job_id) FROM ferry.deliveries WHERE status = 'pending'", "300 300")
	f.want("SELECT count(*) FROM ferry.river_job WHERE args ->> 'own' = 'true'", "600") // each failed with one, and has a new one
	f.ledgerHolds()
	f.talliesHold()
}

// A replay races with others that want the same messages: one of them gets each, and all sums are right.
func TestReplayRaces(t *testing.T) {
	t.Parallel()
	const n = 120
	for name, c := range map[string]struct {
		status message.Status
		rival  func(f *fixture, it *store.Item) (won int, err error)
		ending string // how a message of the rival's is then
	}{
		"another replay": {message.StatusFailed, func(f *fixture, it *store.Item) (int, error) {
			done, err := f.store.ReplayMessages(f.Context(), []int64{it.ID}, failedOnes)
			return len(done), err
		}, "pending"},
		"retry in River UI": {message.StatusFailed, func(f *fixture, it *store.Item) (int, error) {
			due, err := f.store.Reopen(f.Context(), it.ID, it.JobID, "f1")
			return one(!due.IsZero()), err
		}, "pending"},
		"a worker that settles again": {message.StatusFailed, func(f *fixture, it *store.Item) (int, error) {
			o := outcome(it, message.StatusDelivered)
			o.Own = true
			s, err := f.store.Settle(f.Context(), []store.Outcome{o})
			return one(err == nil && s[0].Passed), err
		}, "-"},
		"a purge": {message.StatusDelivered, func(f *fixture, it *store.Item) (int, error) {
			p, err := f.store.PurgeDelivered(f.Context(), 0, []string{"a"})
			for more := err == nil; more; {
				more, err = p.Next(f.Context())
			}
			return int(p.Purged["a"]), err
		}, "purged"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 20)
			f.replaySettled(n, c.status)
			its := f.items()
			filter := store.ReplayFilter{Status: c.status, Routes: []string{"a"}}
			r, sel := f.beginReplay("all", false), f.selection(filter)
			var procs sync.WaitGroup
			won, replayed := 0, 0
			procs.Go(func() {
				for i := range its { // from the end, so that the two meet
					n, err := c.rival(f, its[len(its)-1-i])
					if err != nil {
						t.Error(err)
					}
					won += n
				}
			})
			procs.Go(func() {
				for step := (store.ReplayStep{}); !step.Finished; {
					var err error
					if step, err = f.store.StepReplay(t.Context(), r.ID, sel, 3); err != nil {
						t.Error(err)
						return
					}
					replayed += step.Replayed
				}
			})
			procs.Wait()
			if won+replayed != n || (won == 0) != (c.ending == "-") {
				t.Errorf("%d of the rival, %d replayed, together not %d", won, replayed, n)
			}
			pending := n
			if c.ending == "purged" {
				pending = replayed
			}
			f.want("SELECT count(*) FROM ferry.deliveries WHERE status = 'pending'", fmt.Sprint(pending))
			f.want("SELECT count(*) FROM ferry.deliveries WHERE status <> 'pending'", "0")
			f.want("SELECT sum(stored) - (SELECT count(*) FROM ferry.messages) - (SELECT COALESCE(sum(delivered), 0) FROM ferry.purged) FROM ferry.ledger", "0")
			f.talliesHold()
			f.orphanless()
		})
	}
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// orphanless says that each pending message has a job that is its own.
func (f *fixture) orphanless() {
	f.Helper()
	f.want(`SELECT count(*) FROM ferry.deliveries d LEFT JOIN ferry.river_job j ON j.id = d.job_id
		WHERE d.status = 'pending' AND NOT COALESCE(j.args -> 'ids' @> to_jsonb(d.message_id), false)`, "0")
}

// behind runs do in a transaction, and while that is open, then; it commits once then waits for a lock.
func (f *fixture) behind(do string, then func() error) {
	f.Helper()
	tx, err := f.store.Pool().Begin(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(f.Context(), do); err != nil {
		f.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- then() }()
	proctest.Eventually(f, 10*time.Second, func() error {
		select {
		case err := <-done:
			f.Fatalf("it did not wait: %v", err)
		default:
		}
		if f.value("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == "0" {
			return errors.New("nobody waits for a lock")
		}
		return nil
	})
	if err := tx.Commit(f.Context()); err != nil {
		f.Fatal(err)
	}
	if err := <-done; err != nil {
		f.Error(err)
	}
}

// A replay waits for the transaction that has a message, and then sees what that made of it: purged, or failed anew.
func TestReplayWaitsForARow(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]string{
		"purged":      "DELETE FROM ferry.deliveries WHERE message_id = 1",
		"failed anew": "UPDATE ferry.deliveries SET settled_at = clock_timestamp() WHERE message_id = 1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 20)
			f.replaySettled(2, message.StatusFailed)
			r, sel := f.beginReplay("all", false), f.selection(failedOnes)
			f.behind(do, func() error {
				step, err := f.store.StepReplay(t.Context(), r.ID, sel, 10)
				if err == nil && (step.Replayed != 1 || !step.Finished) {
					t.Errorf("%+v", step)
				}
				return err
			})
			f.want("SELECT array_agg(message_id) FROM ferry.deliveries WHERE status = 'pending'", "{2}")
		})
	}
}

// The second of two that begin at once waits for the first, and goes on with its replay.
func TestBeginReplayTogether(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.behind(`LOCK TABLE ferry.replays IN SHARE ROW EXCLUSIVE MODE; INSERT INTO ferry.replays (filter, up_to) VALUES ('all', 0)`, func() error {
		r, err := f.store.BeginReplay(t.Context(), "all", false)
		if err == nil && r.ID != 1 {
			t.Errorf("began %d", r.ID)
		}
		return err
	})
	f.want("SELECT count(*) FROM ferry.replays", "1")
}

// What single messages are replayed as far as they are what the filter says.
func TestReplayMessages(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	b := batch(0, 4)
	b.Incoming[3].Result = message.IngestUnstorable
	f.save(b)
	its := f.items()
	f.settle(outcome(its[0], message.StatusFailed), outcome(its[1], message.StatusDelivered))
	for _, c := range []struct {
		status message.Status
		want   string
	}{{message.StatusFailed, "[1]"}, {message.StatusFailed, "[]"}, {message.StatusDelivered, "[2]"}} {
		ids, err := f.store.ReplayMessages(t.Context(), []int64{1, 2, 3, 4, 5}, store.ReplayFilter{Status: c.status})
		if err != nil || fmt.Sprint(ids) != c.want {
			t.Errorf("%s: %v, %v, want %s", c.status, ids, err, c.want)
		}
		f.ledgerHolds()
		f.talliesHold()
	}
}

// What a pending message waits for.
func TestWhyPending(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	f.save(batch(0, 4))
	its := f.items()
	next := outcome(its[1], message.StatusPending)
	f.settle(next, outcome(its[2], message.StatusDelivered))
	f.exec("DELETE FROM ferry.river_job WHERE id = $1", its[3].JobID)
	for i, want := range []string{"available", "scheduled", "-", ""} {
		why, err := f.store.WhyPending(t.Context(), its[i].ID)
		switch {
		case err != nil:
			t.Fatal(err)
		case (why == nil) != (want == "-"):
			t.Errorf("message %d: %+v", i, why)
		case why == nil:
		case why.JobState != want || why.JobID == 0 || want == "scheduled" && why.At.Sub(next.NextAttemptAt).Abs() > time.Millisecond:
			t.Errorf("message %d: %+v, want %q", i, why, want)
		}
	}
}
