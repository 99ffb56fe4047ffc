package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/riverjobs"
)

// withDeadLetters gives route a dead letters, and leaves route b without.
func withDeadLetters(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t, 20)
	f.store = open(t, store.Config{URL: f.url, JobSizes: map[string]int{"a": 20, "b": 20}, DeadLetters: map[string]string{"a": "dead"}})
	return f
}

const deadLetterJobs = `SELECT count(*) FROM ferry.river_job WHERE kind = 'dead_letter' AND queue = 'ferry-dead-letters' AND max_attempts = 30000`

// letters returns the arguments of all dead letter jobs.
func (f *fixture) letters() []riverjobs.DeadLetterArgs {
	f.Helper()
	var all []riverjobs.DeadLetterArgs
	if err := json.Unmarshal([]byte(f.value(`SELECT COALESCE(jsonb_agg(args ORDER BY id), '[]') FROM ferry.river_job WHERE kind = 'dead_letter'`)), &all); err != nil {
		f.Fatal(err)
	}
	return all
}

// Each failure that passes the fence has its dead letter's job, with what the row says; what goes on, what is delivered,
// what comes too late and what has a route without dead letters has none.
func TestDeadLetterOfAnOutcome(t *testing.T) {
	t.Parallel()
	f := withDeadLetters(t)
	b := batch(0, 5)
	b.Incoming[4].Route = "b"
	f.save(b)
	its := f.items()
	rejected := outcome(its[0], message.StatusFailed)
	rejected.Attempt.Error, rejected.Detail = "bad request", "no plate"
	unmappable := outcome(its[1], message.StatusFailed)
	unmappable.Reason, unmappable.Attempt, unmappable.Counted = message.Unmappable, nil, false
	late := outcome(its[2], message.StatusFailed)
	late.JobID++
	f.settle(rejected, unmappable, late, outcome(its[3], message.StatusDelivered), outcome(its[4], message.StatusFailed))
	f.want(deadLetterJobs, "2")
	got := f.letters()
	failedAt := func(i int) time.Time {
		var at time.Time
		if err := f.store.Pool().QueryRow(t.Context(), "SELECT settled_at FROM ferry.deliveries WHERE message_id = $1", its[i].ID).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at.UTC()
	}
	for i, want := range []riverjobs.DeadLetterArgs{
		{
			MessageID: its[0].ID, Route: "a", Key: "key-0", Reason: "rejected", Detail: "no plate", Attempts: 1, HTTPStatus: 400,
			ErrorCode: "998", Error: "bad request", FailedAt: failedAt(0), Bytes: 8,
		},
		{MessageID: its[1].ID, Route: "a", Key: "key-1", Reason: "unmappable", FailedAt: failedAt(1), Bytes: 8},
	} {
		if got[i] != want {
			t.Errorf("job %d: %+v, want %+v", i, got[i], want)
		}
	}
	// The same outcome again, as after a crash: nothing.
	f.settle(rejected)
	f.want(deadLetterJobs, "2")
}

// What is failed from the start has a dead letter too; what is read again has not a second one.
func TestDeadLetterFromTheStart(t *testing.T) {
	t.Parallel()
	f := withDeadLetters(t)
	f.exec("ALTER TABLE ferry.messages ADD CHECK (payload <> 'poison')")
	b := batch(0, 3)
	b.Incoming[1].Key = "key-0" // a conflict
	b.Incoming[2].Record.Value = []byte("poison")
	b.Incoming[2].Result, b.Incoming[2].Detail = message.IngestUnstorable, "the database refused it"
	b.Incoming = append(b.Incoming, b.Incoming[0], b.Incoming[1])
	b.Incoming[3].Route, b.Incoming[4].Route = "b", "b" // the same conflict, without dead letters
	f.save(b)
	f.want(deadLetterJobs, "2")
	got := f.letters()
	if got[0].Reason != "unstorable" || got[0].Detail != "the database refused it" || got[0].Bytes != 0 || got[0].Attempts != 0 {
		t.Errorf("unstorable: %+v", got[0])
	}
	if got[1].Reason != "conflict" || got[1].Key != "key-0#"+pos(1).Key() {
		t.Errorf("conflict: %+v", got[1])
	}
	f.set(at(1, 3), at(1, 0))
	f.save(b)
	f.want(deadLetterJobs, "2")
	loaded, err := f.store.DeadLetters(t.Context(), []int64{got[0].MessageID, got[1].MessageID, 99})
	if err != nil || len(loaded) != 2 {
		t.Fatalf("%v, %v", loaded, err)
	}
	if l := loaded[got[0].MessageID]; !l.Stripped || l.Record.Value != nil || l.Record.Offset != 2 || !l.FailedAt.Equal(got[0].FailedAt) {
		t.Errorf("unstorable: %+v", l)
	}
	if l := loaded[got[1].MessageID]; l.Stripped || string(l.Record.Value) != `{"n":1}` || !l.WrittenAt.IsZero() {
		t.Errorf("conflict: %+v", l)
	}
}

// A transaction that does not commit leaves no job.
func TestDeadLetterIsOfTheTransaction(t *testing.T) {
	t.Parallel()
	f := withDeadLetters(t)
	f.save(batch(0, 1))
	f.exec("ALTER TABLE ferry.tallies ADD CHECK (failed = 0)") // the last statement of settling
	s, err := f.store.Settle(t.Context(), []store.Outcome{outcome(f.items()[0], message.StatusFailed)})
	if err != nil || s[0].Err == nil {
		t.Fatalf("%+v, %v", s, err)
	}
	f.want(deadLetterJobs, "0")
	f.want("SELECT count(*) FROM ferry.deliveries WHERE status = 'pending'", "1")
}

// dead_lettered_at is of the failure that the dead letter tells of: not of a message that was replayed meanwhile, nor of a
// later failure.
func TestDeadLettered(t *testing.T) {
	t.Parallel()
	f := withDeadLetters(t)
	f.save(batch(0, 2))
	its := f.items()
	const when = "SELECT dead_lettered_at IS NOT NULL FROM ferry.deliveries WHERE message_id = (SELECT min(id) FROM ferry.messages)"
	noted := func(i int) {
		t.Helper()
		l := f.letters()[i]
		if err := f.store.DeadLettered(t.Context(), []store.Written{{MessageID: l.MessageID, FailedAt: l.FailedAt}, {MessageID: 99, FailedAt: l.FailedAt}}); err != nil {
			t.Fatal(err)
		}
	}
	f.settle(outcome(its[0], message.StatusFailed), outcome(its[1], message.StatusFailed))
	noted(0)
	f.want(when, "true")
	f.want("SELECT count(dead_lettered_at) FROM ferry.deliveries", "1")
	first := f.value("SELECT dead_lettered_at FROM ferry.deliveries WHERE message_id = $1", its[0].ID)
	noted(0)
	if again := f.value("SELECT dead_lettered_at FROM ferry.deliveries WHERE message_id = $1", its[0].ID); again != first {
		t.Errorf("%s, and later %s", first, again)
	}
	replay := func() {
		t.Helper()
		f.exec("UPDATE ferry.deliveries SET status = 'pending', reason = NULL, settled_at = NULL WHERE message_id = $1", its[0].ID)
		f.exec("DELETE FROM ferry.failures WHERE message_id = $1", its[0].ID)
	}
	replay()
	again := f.items()[0]
	o := outcome(again, message.StatusFailed)
	o.Own = true
	if s, err := f.store.Settle(t.Context(), []store.Outcome{o}); err != nil || !s[0].Passed {
		t.Fatalf("%+v %v", s, err)
	}
	f.want(deadLetterJobs, "3")
	f.want(when, "false")
	noted(0) // the first failure's, a second time
	f.want(when, "false")
	noted(2)
	f.want(when, "true")
	loaded, err := f.store.DeadLetters(t.Context(), []int64{its[0].ID})
	if err != nil || loaded[its[0].ID].WrittenAt.IsZero() || !loaded[its[0].ID].FailedAt.Equal(f.letters()[2].FailedAt) {
		t.Errorf("%+v, %v", loaded[its[0].ID], err)
	}
	replay()
	noted(2)
	f.want("SELECT status FROM ferry.deliveries WHERE message_id = "+f.value("SELECT min(id) FROM ferry.messages"), "pending")
}
