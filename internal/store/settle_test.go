package store_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
)

// items loads all messages, in the order of their ids.
func (f *fixture) items() []*store.Item {
	f.Helper()
	rows, err := f.store.Pool().Query(f.Context(), "SELECT id FROM ferry.messages ORDER BY id")
	if err != nil {
		f.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		f.Fatal(err)
	}
	l, err := f.store.Load(f.Context(), ids)
	if err != nil {
		f.Fatal(err)
	}
	if d := time.Since(l.Now); d > time.Minute || d < -time.Minute {
		f.Errorf("database clock off by %v", d)
	}
	items := make([]*store.Item, len(ids))
	for i, id := range ids {
		items[i] = l.Items[id]
	}
	return items
}

func outcome(it *store.Item, status message.Status) store.Outcome {
	o := store.Outcome{
		MessageID: it.ID, JobID: it.JobID, Route: it.Route, Key: it.Message.Key, Bytes: int64(len(it.Value)), Status: status,
		Counted: true, Forwarder: "f1",
		Attempt: &message.Attempt{StartedAt: time.Now(), Duration: 12 * time.Millisecond, Verdict: message.Delivered, HTTPStatus: 200},
	}
	switch status {
	case message.StatusPending:
		o.NextAttemptAt = time.Now().Add(time.Minute)
		o.Attempt.Verdict, o.Attempt.HTTPStatus, o.Attempt.Error = message.Retry, 500, "internal server error"
	case message.StatusFailed:
		o.Reason, o.Attempt.Verdict, o.Attempt.HTTPStatus = message.Rejected, message.Reject, 400
		o.Attempt.ErrorCode = "998"
	case message.StatusDelivered:
	}
	return o
}

func (f *fixture) settle(o ...store.Outcome) []store.Settled {
	f.Helper()
	s, err := f.store.Settle(f.Context(), o)
	if err != nil {
		f.Fatal(err)
	}
	if len(s) != len(o) {
		f.Fatalf("%d results for %d outcomes", len(s), len(o))
	}
	f.ledgerHolds()
	f.talliesHold()
	return s
}

// talliesHold compares the sums with the rows.
func (f *fixture) talliesHold() {
	f.Helper()
	counts, err := f.store.Counts(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	for route, c := range counts {
		got := fmt.Sprint(c.Pending, c.Delivered, c.Failed)
		want := f.value(`SELECT count(*) FILTER (WHERE status = 'pending') || ' ' || count(*) FILTER (WHERE status = 'delivered')
			|| ' ' || count(*) FILTER (WHERE status = 'failed') FROM ferry.deliveries WHERE route = $1`, route)
		if got != want {
			f.Errorf("route %s: counts say %s, rows %s", route, got, want)
		}
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.save(batch(0, 4))
	its := f.items()
	got := f.settle(outcome(its[0], message.StatusDelivered), outcome(its[1], message.StatusPending), outcome(its[2], message.StatusFailed))
	for i, s := range got {
		if !s.Passed || s.Err != nil {
			t.Errorf("outcome %d: %+v", i, s)
		}
	}
	after := f.items()
	// Delivered and unsent ones stay with the group's job, the others have one of their own.
	for i, own := range []bool{false, true, true, false} {
		if (after[i].JobID != its[i].JobID) != own {
			t.Errorf("message %d: job %d, group's %d", i, after[i].JobID, its[i].JobID)
		}
		if i < 3 && got[i].JobID != after[i].JobID {
			t.Errorf("message %d: job %d reported, %d stored", i, got[i].JobID, after[i].JobID)
		}
	}
	f.want(`SELECT array_agg(status || ' ' || attempts || ' ' || requests || ' ' || COALESCE(reason, '-') || ' ' || COALESCE(http_status, 0) ORDER BY message_id) FROM ferry.deliveries`,
		`{"delivered 1 1 - 200","pending 1 1 - 500","failed 1 1 rejected 400","pending 0 0 - 0"}`)
	f.want(`SELECT array_agg((settled_at IS NOT NULL)::int || '' || (next_attempt_at IS NOT NULL)::int ORDER BY message_id) FROM ferry.deliveries`, "{10,01,10,00}")
	// Jobs of their own: the pending one's waits, the failed one's comes at once to cancel itself.
	f.want(fmt.Sprintf(`SELECT array_agg(state || ' ' || (args ->> 'own') || ' ' || (args ->> 'key') || ' ' || (args ->> 'bytes') ORDER BY id)
		FROM ferry.river_job WHERE id IN (%d, %d)`, got[1].JobID, got[2].JobID), `{"scheduled true key-1 7","available true key-2 7"}`)
	f.want(fmt.Sprintf("SELECT j.scheduled_at = d.next_attempt_at FROM ferry.river_job j JOIN ferry.deliveries d ON d.job_id = j.id WHERE j.id = %d", got[1].JobID), "true")
	f.want(`SELECT array_agg(attempt || ' ' || counted || ' ' || duration_ms || ' ' || verdict || ' ' || forwarder ORDER BY message_id) FROM ferry.attempts`,
		`{"1 true 12 delivered f1","1 true 12 retry f1","1 true 12 reject f1"}`)
	f.want("SELECT route || ' ' || reason || ' ' || error_code || ' ' || http_status FROM ferry.failures", "a rejected 998 400")
}

// A message's own job keeps it: attempts go on counting, held requests are requests but no attempts, and a run without a
// request leaves what the last one said.
func TestSettleOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	f.save(batch(0, 1))
	own := func(status message.Status) store.Outcome {
		o := outcome(f.items()[0], status)
		o.Own = true
		return o
	}
	first := f.settle(own(message.StatusPending))[0]
	held := own(message.StatusPending)
	held.Counted, held.Attempt.Verdict, held.Attempt.HTTPStatus = false, message.Hold, 429
	if s := f.settle(held)[0]; !s.Passed || s.JobID != first.JobID {
		t.Errorf("%+v, first %+v", s, first)
	}
	f.want("SELECT attempts || ' ' || requests || ' ' || http_status FROM ferry.deliveries", "1 2 429")
	expired := own(message.StatusFailed)
	expired.Attempt, expired.Counted, expired.Reason, expired.Detail = nil, false, message.Expired, "older than 72h"
	f.settle(expired)
	f.want("SELECT attempts || ' ' || requests || ' ' || http_status || ' ' || reason || ' ' || error || ' ' || detail FROM ferry.deliveries",
		"1 2 429 expired internal server error older than 72h")
	f.want("SELECT array_agg(attempt || ' ' || counted ORDER BY attempt) FROM ferry.attempts", `{"1 true","2 false"}`)
	f.want("SELECT count(*) FROM ferry.river_job", "1")
}

// The fence: what another job owns, what is settled, what does not exist stays as it is.
func TestSettleFence(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.save(batch(0, 3))
	its := f.items()
	group := outcome(its[0], message.StatusDelivered)
	f.settle(outcome(its[0], message.StatusPending), outcome(its[1], message.StatusDelivered))
	story := `SELECT string_agg(d::text, ',' ORDER BY message_id) || (SELECT count(*) FROM ferry.attempts) ||
		(SELECT count(*) FROM ferry.river_job) || (SELECT string_agg(t::text, ',') FROM ferry.tallies t) FROM ferry.deliveries d`
	before := f.value(story)
	late := []store.Outcome{group, outcome(its[1], message.StatusFailed), outcome(its[1], message.StatusDelivered)}
	missing, foreign := outcome(its[2], message.StatusDelivered), outcome(its[2], message.StatusFailed)
	missing.MessageID, foreign.JobID = 1<<40, 1<<40
	late = append(late, missing, foreign)
	for i, s := range f.settle(late...) {
		if s.Passed || s.Err != nil || s.JobID != 0 {
			t.Errorf("late outcome %d: %+v", i, s)
		}
	}
	if after := f.value(story); after != before {
		t.Errorf("late outcomes changed something:\n%s\n%s", before, after)
	}
	// Of two in one call the first counts.
	s := f.settle(outcome(its[2], message.StatusDelivered), outcome(its[2], message.StatusFailed))
	if !s[0].Passed || s[1].Passed {
		t.Errorf("%+v", s)
	}
	if got := f.settle(); len(got) != 0 {
		t.Error(got)
	}
}

// Many runs settle the same messages at once: each message once.
func TestSettleSideBySide(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	const n = 60
	f.save(batch(0, n))
	its := f.items()
	var passed atomic.Int64
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			var all []store.Outcome
			for i := range n {
				o := outcome(its[(i*7+w*13)%n], message.Statuses()[i%3])
				o.Forwarder = fmt.Sprint(w)
				all = append(all, o)
			}
			s, err := f.store.Settle(t.Context(), all)
			if err != nil {
				t.Error(err)
			}
			for _, s := range s {
				if s.Passed {
					passed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if passed.Load() != n {
		t.Errorf("%d passed, want %d", passed.Load(), n)
	}
	f.ledgerHolds()
	f.talliesHold()
	f.want("SELECT count(*) FROM ferry.attempts", fmt.Sprint(n))
}

// A value that the database refuses fails its own outcome, not its neighbours'.
func TestSettleBisects(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.exec("ALTER TABLE ferry.attempts ADD CHECK (response <> 'poison')")
	f.save(batch(0, 9))
	its := f.items()
	var all []store.Outcome
	for i, it := range its {
		o := outcome(it, message.Statuses()[i%3])
		if i == 2 || i == 6 {
			o.Attempt.Response = "poison"
		}
		all = append(all, o)
	}
	for i, s := range f.settle(all...) {
		if bad := i == 2 || i == 6; s.Passed == bad || (s.Err != nil) != bad {
			t.Errorf("outcome %d: %+v", i, s)
		}
	}
	f.want("SELECT count(*) FROM ferry.attempts", "7")
	f.want("SELECT count(*) FROM ferry.deliveries WHERE requests = 0 AND status = 'pending'", "2")
	all[2].Attempt.Response = ""
	if s := f.settle(all[2])[0]; !s.Passed {
		t.Errorf("%+v", s)
	}
}

// Whatever a destination answers is stored.
func TestSettleHostileTexts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.save(batch(0, 3))
	its := f.items()
	bad := "\x00\xff" + strings.Repeat("粤", 4000)
	o := outcome(its[0], message.StatusPending)
	o.Detail, o.Forwarder, o.Key = bad, bad, bad
	o.Attempt.Error, o.Attempt.ErrorCode, o.Attempt.Response = bad, bad, strings.Repeat("\x00", 5000)
	o.Attempt.StartedAt, o.Attempt.Duration = time.Time{}, 1<<62
	o.NextAttemptAt = time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC)
	o.Attempt.HTTPStatus = 1 << 40
	if s := f.settle(o)[0]; !s.Passed || s.Err != nil {
		t.Errorf("%+v", s)
	}
	f.want("SELECT max(octet_length(error)) <= 1024 AND max(octet_length(response)) <= 1024 AND max(octet_length(error_code)) <= 64 FROM ferry.attempts", "true")
}

// Settling must not write an index entry: each update stays in its page, also when one transaction settles all rows of
// a page, and when none is delivered.
func TestSettleIsHOT(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ size, kinds int }{
		"delivered": {200, 1}, "pending": {40, 2}, "mixed": {50, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 20)
			const n = 600
			f.save(batch(0, n))
			var all []store.Outcome
			for i, it := range f.items() {
				status := []message.Status{message.StatusDelivered, message.StatusPending, message.StatusFailed}[i%c.kinds]
				all = append(all, outcome(it, status))
			}
			for at := 0; at < n; at += c.size {
				if _, err := f.store.Settle(t.Context(), all[at:at+c.size]); err != nil {
					t.Fatal(err)
				}
			}
			// The backends flush their statistics when they are idle.
			stat := "SELECT n_tup_upd || ' ' || n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'ferry.deliveries'::regclass"
			f.eventually("the statistics to arrive", func() bool { return strings.HasPrefix(f.value(stat), "600 ") })
			f.want(stat, "600 600")
		})
	}
}

func (f *fixture) eventually(what string, cond func() bool) {
	f.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline:
			f.Fatalf("waited 20s for %s", what)
		case <-tick.C:
		}
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.save(batch(0, 5))
	its := f.items()
	f.settle(outcome(its[0], message.StatusPending), outcome(its[1], message.StatusDelivered))
	var split atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			n, err := f.store.Split(t.Context(), its[0].JobID)
			if err != nil {
				t.Error(err)
			}
			split.Add(int64(n))
		})
	}
	wg.Wait()
	if split.Load() != 3 {
		t.Errorf("%d messages got jobs of their own, want 3", split.Load())
	}
	f.ledgerHolds()
	f.want("SELECT count(DISTINCT job_id) FROM ferry.deliveries", "5")
	f.want("SELECT count(*) FROM ferry.river_job WHERE state = 'available' AND (args ->> 'own')::bool AND args ->> 'bytes' = '7'", "3")
	// The group's job, run again, settles nothing.
	for _, s := range f.settle(outcome(its[2], message.StatusDelivered), outcome(its[3], message.StatusFailed)) {
		if s.Passed {
			t.Error("the group settled a message that has left it")
		}
	}
	if n, err := f.store.Split(t.Context(), 1<<40); n != 0 || err != nil {
		t.Error(n, err)
	}
}

func TestLoadNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	l, err := f.store.Load(t.Context(), []int64{4711})
	if err != nil || len(l.Items) != 0 || l.Now.IsZero() {
		t.Errorf("%+v, %v", l, err)
	}
}
