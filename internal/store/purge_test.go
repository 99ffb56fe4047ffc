package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
)

const keep = time.Hour

// age makes everything that there is older.
func (f *fixture) age(by time.Duration) {
	f.Helper()
	for _, sql := range []string{
		"UPDATE ferry.messages SET received_at = received_at - make_interval(secs => $1)",
		"UPDATE ferry.deliveries SET settled_at = settled_at - make_interval(secs => $1), due_from = due_from - make_interval(secs => $1)",
		"UPDATE ferry.failures SET failed_at = failed_at - make_interval(secs => $1)",
	} {
		f.exec(sql, by.Seconds())
	}
}

// nextDay lets the next purge but one begin with the oldest message.
func (f *fixture) nextDay() {
	f.Helper()
	f.exec("UPDATE ferry.retention SET swept_at = swept_at - interval '25 hours'")
}

func (f *fixture) delivered(routes ...string) *store.Purge {
	f.Helper()
	p, err := f.store.PurgeDelivered(f.Context(), keep, routes)
	if err != nil {
		f.Fatal(err)
	}
	return p
}

func (f *fixture) failed(route string, letters bool) *store.Purge {
	f.Helper()
	p, err := f.store.PurgeFailed(f.Context(), keep, route, letters)
	if err != nil {
		f.Fatal(err)
	}
	return p
}

// through runs a purge to its end and returns what it purged.
func (f *fixture) through(p *store.Purge) string {
	f.Helper()
	for more := true; more; {
		var err error
		if more, err = p.Next(f.Context()); err != nil {
			f.Fatal(err)
		}
	}
	f.balances()
	return fmt.Sprint(p.Purged)
}

// balances checks what must hold at every moment.
func (f *fixture) balances() {
	f.Helper()
	f.ledgerHolds()
	f.talliesHold()
	f.want(`SELECT count(*) FROM (SELECT message_id FROM ferry.deliveries UNION ALL SELECT message_id FROM ferry.failures) x
		WHERE NOT EXISTS (SELECT FROM ferry.messages m WHERE m.id = x.message_id)`, "0")
}

const there = "SELECT array_agg(id ORDER BY id) FROM ferry.messages"

// Only what is delivered, past its time and of these routes goes, with all its rows; the sums hold.
func TestPurgeDelivered(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	b := batch(0, 6)
	b.Incoming[4].Route = "b"
	b.Incoming[5].Record.TopicID = message.TopicID{2}
	f.save(b)
	its := f.items()
	f.settle(outcome(its[0], message.StatusDelivered), outcome(its[2], message.StatusFailed), outcome(its[4], message.StatusDelivered), outcome(its[5], message.StatusDelivered))
	f.look() // message 2 is pending, and in unsettled
	f.age(2 * keep)
	f.exec("INSERT INTO ferry.unsettled SELECT 1")
	f.save(batch(6, 1))
	f.settle(outcome(f.items()[6], message.StatusDelivered))
	if got := f.through(f.delivered("a")); got != "map[a:2]" {
		t.Error("purged", got)
	}
	f.want(there, "{2,3,4,5,7}")
	f.want("SELECT array_agg(message_id ORDER BY message_id) FROM ferry.deliveries", "{2,3,4,5,7}")
	f.want("SELECT array_agg(message_id ORDER BY message_id) FROM ferry.unsettled", "{2,4}")
	f.want("SELECT array_agg(left(topic_id::text, 2) || delivered || failed ORDER BY topic_id) FROM ferry.purged", "{0110,0210}")
	f.want("SELECT count(*) FROM ferry.attempts WHERE message_id = 1", "1")
	if got := f.through(f.delivered("a", "b")); got != "map[]" {
		t.Error("a walk met what it had passed:", got)
	}
	f.nextDay()
	f.through(f.delivered("a", "b"))
	if got := f.through(f.delivered("a", "b")); got != "map[b:1]" {
		t.Error("the next sweep purged", got)
	}
	f.want(there, "{2,3,4,7}")
}

// A walk looks at each message once; what was not delivered then is met by the next sweep, a day later. What became old
// just before is looked at twice.
func TestPurgeSweeps(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.save(batch(0, 3))
	f.age(keep)
	f.save(batch(3, 2)) // these became old a minute ago
	f.age(keep + time.Minute)
	f.save(batch(5, 2))
	f.through(f.delivered("a"))
	f.want("SELECT swept_to || ' ' || keep_seconds FROM ferry.retention", "3 3600")
	late := "UPDATE ferry.deliveries SET status = 'delivered', settled_at = now() - interval '61 minutes' WHERE message_id = ANY($1)"
	f.exec(late, []int64{2, 4})
	f.exec("UPDATE ferry.tallies SET delivered = delivered + 2 WHERE route = 'a'")
	f.exec("INSERT INTO ferry.tallies (slot, route, delivered) VALUES (0, 'a', 2) ON CONFLICT DO NOTHING")
	if got := f.through(f.delivered("a")); got != "map[a:1]" {
		t.Error("purged", got)
	}
	f.want(there, "{1,2,3,5,6,7}")
	f.nextDay()
	f.through(f.delivered("a"))
	f.want("SELECT swept_to || ' ' || (swept_at > now() - interval '1 minute') FROM ferry.retention", "0 true")
	if got := f.through(f.delivered("a")); got != "map[a:1]" {
		t.Error("purged", got)
	}
	f.want(there, "{1,3,5,6,7}")
	f.want("SELECT swept_to FROM ferry.retention", "3")
}

// history puts n delivered messages of an hour and more ago into route a, without jobs.
func (f *fixture) history(n int) {
	f.Helper()
	f.exec(`WITH m AS (
			INSERT INTO ferry.messages (route, message_key, topic, topic_id, partition, "offset", received_at)
			SELECT 'a', 'h' || i, 'history', '00000000-0000-0000-0000-000000000000', i % 4, i, now() - interval '2 hours' + i * interval '1 millisecond'
			FROM generate_series(1, $1::int) AS i RETURNING id, received_at, partition
		), d AS (
			INSERT INTO ferry.deliveries (message_id, route, status, settled_at) SELECT id, 'a', 'delivered', received_at FROM m
		), l AS (
			INSERT INTO ferry.ledger (route, topic, topic_id, partition, consumed, stored)
			SELECT 'a', 'history', '00000000-0000-0000-0000-000000000000', partition, count(*), count(*) FROM m GROUP BY partition
		)
		INSERT INTO ferry.tallies (slot, route, delivered) VALUES (0, 'a', $1)`, n)
}

// A purge that ends anywhere leaves nothing half done, and the next one goes on where it stopped.
func TestPurgeIsCutOff(t *testing.T) {
	t.Parallel()
	const n = 25_000
	f := newFixture(t, 20)
	f.history(n)
	f.exec("UPDATE ferry.deliveries SET settled_at = now() WHERE message_id % 5 = 0") // survivors
	var purged int64
	for steps := 1; ; steps++ {
		p := f.delivered("a")
		more := true
		for range steps {
			var err error
			if more, err = p.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !more {
				break
			}
		}
		f.balances()
		purged += p.Purged["a"]
		if !more {
			break
		}
	}
	if purged != n*4/5 {
		t.Errorf("purged %d", purged)
	}
	f.want("SELECT sum(delivered) FROM ferry.purged", fmt.Sprint(n*4/5))
	f.want("SELECT count(*) || ' ' || count(*) FILTER (WHERE message_id % 5 = 0) FROM ferry.deliveries", fmt.Sprint(n/5, " ", n/5))
	f.want("SELECT swept_to FROM ferry.retention", fmt.Sprint(n))
}

// Two forwarders purge the same at once.
func TestPurgeTwice(t *testing.T) {
	t.Parallel()
	const n = 25_000
	f := newFixture(t, 20)
	f.history(n)
	var wg sync.WaitGroup
	for range 2 {
		p := f.delivered("a")
		wg.Go(func() {
			for more := true; more; {
				var err error
				if more, err = p.Next(f.Context()); err != nil {
					f.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	f.balances()
	f.through(f.delivered("a"))
	f.nextDay()
	f.through(f.delivered("a"))
	f.through(f.delivered("a"))
	f.want("SELECT count(*) FROM ferry.messages", "0")
	f.want("SELECT sum(delivered) FROM ferry.purged", fmt.Sprint(n))
}

// Failed messages go by the time they failed; with dead letters, those only whose dead letter is written.
func TestPurgeFailed(t *testing.T) {
	t.Parallel()
	f := withDeadLetters(t)
	b := batch(0, 6)
	b.Incoming[1].Key = "key-0" // a conflict
	b.Incoming[5].Route = "b"
	f.save(b)
	its := f.items()
	for _, it := range its {
		if it.Status == message.StatusPending {
			f.settle(outcome(it, message.StatusFailed))
		}
	}
	f.age(2 * keep)
	f.exec("UPDATE ferry.deliveries SET dead_lettered_at = now() WHERE message_id IN (3, 4)")
	f.exec("UPDATE ferry.deliveries SET settled_at = now() WHERE message_id = 4")
	f.exec("UPDATE ferry.failures SET failed_at = now() WHERE message_id = 4")
	p := f.failed("a", true)
	if got := f.through(p); got != "map[a:1]" || p.Waiting != 3 {
		t.Error("purged", got, "waiting", p.Waiting)
	}
	f.want(there, "{1,2,4,5,6}")
	p = f.failed("a", false)
	if got := f.through(p); got != "map[a:3]" || p.Waiting != 0 {
		t.Error("purged", got, "waiting", p.Waiting)
	}
	if got := f.through(f.failed("b", false)); got != "map[b:1]" {
		t.Error("purged", got)
	}
	f.want(there, "{4}")
	f.want("SELECT array_agg(message_id) FROM ferry.failures", "{4}")
	f.want("SELECT sum(failed) || ' ' || sum(delivered) FROM ferry.purged", "5 0")
}

// Between the look and the purge somebody else may take a message up, and while he does the purge does not wait for him.
func TestPurgeLeavesWhatChanged(t *testing.T) {
	t.Parallel()
	for _, status := range []message.Status{message.StatusDelivered, message.StatusFailed} {
		t.Run(status.String(), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 20)
			f.save(batch(0, 3))
			for _, it := range f.items() {
				f.settle(outcome(it, status))
			}
			f.age(2 * keep)
			p := f.delivered("a")
			if status == message.StatusFailed {
				p = f.failed("a", false)
			}
			if _, err := p.Next(t.Context()); err != nil { // looks
				t.Fatal(err)
			}
			const reopen = "UPDATE ferry.deliveries SET status = 'pending', reason = NULL, settled_at = NULL WHERE message_id = $1"
			f.exec(reopen, 1)
			tx, err := f.store.Pool().Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(context.Background())
			if _, err := tx.Exec(t.Context(), reopen, 2); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			for more := true; more; {
				if more, err = p.Next(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if d := time.Since(begun); d > 5*time.Second {
				t.Errorf("it waited %v for another transaction", d)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.want(there, "{1,2}")
			f.want("SELECT array_agg(status) FROM ferry.deliveries", "{pending,pending}")
			if fmt.Sprint(p.Purged) != "map[a:1]" {
				t.Error("purged", p.Purged)
			}
		})
	}
}

// The ingester finds a key taken, and then the message that had it purged:
//
//	Save inserts key-0: it exists; it goes on to key-1, which somebody is inserting, and waits
//	purge deletes the message with key-0, commits
//	somebody rolls back; Save inserts key-1, and reads the message with key-0: there is none
//
// The record is stored as a new message. If it were dropped as a duplicate, or the ledger counted it as one, it would be
// lost.
func TestPurgeMeetsSaveAfterItsInsert(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.save(batch(0, 1))
	f.settle(outcome(f.items()[0], message.StatusDelivered))
	f.age(2 * keep)
	f.set(at(1, 1), at(1, 0))
	tx := f.inserting("key-1")
	saved := f.saving(batch(0, 2))
	f.waitsForLock()
	if got := f.through(f.delivered("a")); got != "map[a:1]" {
		t.Fatal("purged", got)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-saved; fmt.Sprint(got) != "[stored stored]" {
		t.Error(got)
	}
	f.balances()
	f.want("SELECT string_agg(message_key || ' ' || status, ',' ORDER BY message_key) FROM ferry.message_status", "key-0 pending,key-1 pending")
	f.want("SELECT sum(consumed) || ' ' || sum(stored) || ' ' || sum(duplicates) FROM ferry.ledger", "3 3 0")
	f.want("SELECT next_offset FROM ferry.positions", "2")
}

// The ingester inserts a key while its message is being purged: it waits for that, and then the key is free, or, if the
// purge came to nothing, a duplicate.
func TestPurgeMeetsSaveBeforeItsCommit(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"purged": "[stored]", "not purged": "[duplicate]"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 20)
			f.save(batch(0, 1))
			f.settle(outcome(f.items()[0], message.StatusDelivered))
			f.age(2 * keep)
			f.set(at(1, 1), at(1, 0))
			f.exec("INSERT INTO ferry.purged SELECT route, topic, topic_id, partition FROM ferry.messages")
			tx, err := f.store.Pool().Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(context.Background())
			if _, err := tx.Exec(t.Context(), "SELECT FROM ferry.purged FOR UPDATE"); err != nil { // the last that a purge needs
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			purge := f.delivered("a")
			purged := make(chan error, 1)
			go func() {
				more, err := true, error(nil)
				for more && err == nil {
					more, err = purge.Next(ctx)
				}
				purged <- err
			}()
			f.waitsForLock()
			saved := f.saving(batch(0, 1))
			f.eventually("both to wait", func() bool { return f.value(waiting) == "2" })
			if name == "not purged" {
				cancel(errors.New("killed"))
			} else if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-purged; (err != nil) != (name == "not purged") {
				t.Error("the purge:", err)
			}
			if got := <-saved; fmt.Sprint(got) != want {
				t.Errorf("%v, want %s", got, want)
			}
			if err := tx.Rollback(t.Context()); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
				t.Error(err)
			}
			f.balances()
		})
	}
}

const waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

func (f *fixture) waitsForLock() {
	f.Helper()
	f.eventually("somebody to wait for a lock", func() bool { return f.value(waiting) == "1" })
}

// inserting is a transaction that has inserted a message with a key and not ended.
func (f *fixture) inserting(key string) pgx.Tx {
	f.Helper()
	tx, err := f.store.Pool().Begin(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(f.Context(), `INSERT INTO ferry.messages (route, message_key, topic, topic_id, partition, "offset")
		VALUES ('a', $1, 'events', '00000000-0000-0000-0000-000000000000', 7, 0)`, key); err != nil {
		f.Fatal(err)
	}
	return tx
}

// saving saves a batch in the background.
func (f *fixture) saving(b *message.Batch) <-chan []message.IngestResult {
	done := make(chan []message.IngestResult, 1)
	go func() {
		saved, err := f.store.Save(f.Context(), b)
		if err != nil {
			f.Error(err)
			saved = &message.Saved{}
		}
		done <- saved.Results
	}()
	return done
}

// While messages with ever the same keys are stored, settled, replayed and purged, with next to no retention, the sums
// hold, and nobody fails.
func TestPurgeUnderLoad(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 5)
	ctx, stop := context.WithTimeout(t.Context(), 4*time.Second)
	defer stop()
	var wg sync.WaitGroup
	again := func(do func() error) {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := do(); err != nil {
					f.Error(err)
					return
				}
			}
		})
	}
	var next int64
	again(func() error { // keys come again and again, some of them with another payload
		b := batch(next, 40)
		for i := range b.Incoming {
			in := &b.Incoming[i]
			in.Key = fmt.Sprint("key-", (next+int64(i))%300)
			in.Record.Value = []byte(fmt.Sprint((next + int64(i)) % 300 * (1 + next/4000)))
			in.Route = []string{"a", "b"}[i%2]
		}
		next += 40
		_, err := f.store.Save(f.Context(), b)
		return err
	})
	again(func() error { // settles what is pending
		ids, err := f.ids("SELECT message_id FROM ferry.deliveries WHERE status = 'pending' ORDER BY random() LIMIT 30")
		if err != nil {
			return err
		}
		l, err := f.store.Load(f.Context(), ids)
		if err != nil {
			return err
		}
		var outcomes []store.Outcome
		for id, it := range l.Items {
			outcomes = append(outcomes, outcome(it, []message.Status{message.StatusDelivered, message.StatusDelivered, message.StatusFailed}[id%3]))
		}
		_, err = f.store.Settle(f.Context(), outcomes)
		return err
	})
	again(func() error { // replays
		for _, status := range []message.Status{message.StatusFailed, message.StatusDelivered} {
			ids, err := f.ids("SELECT message_id FROM ferry.deliveries WHERE status = '" + status.String() + "' ORDER BY random() LIMIT 3")
			if err != nil {
				return err
			}
			if _, err = f.store.ReplayMessages(f.Context(), ids, store.ReplayFilter{Status: status}); err != nil {
				return err
			}
		}
		return nil
	})
	again(func() error { // reconcile
		if _, err := f.store.Look(f.Context()); err != nil {
			return err
		}
		_, err := f.store.CheckUnsettled(f.Context(), nil)
		return err
	})
	purged := make(map[message.Status]int64)
	var mu sync.Mutex
	for range 2 {
		again(func() error {
			for _, begin := range []func() (*store.Purge, error){
				func() (*store.Purge, error) {
					return f.store.PurgeDelivered(f.Context(), time.Second, []string{"a", "b"})
				},
				func() (*store.Purge, error) { return f.store.PurgeFailed(f.Context(), time.Second, "a", false) },
				func() (*store.Purge, error) { return f.store.PurgeFailed(f.Context(), time.Second, "b", false) },
			} {
				p, err := begin()
				for more := true; more && err == nil; {
					more, err = p.Next(f.Context())
				}
				if err != nil {
					return err
				}
				mu.Lock()
				purged[p.Status] += p.Purged["a"] + p.Purged["b"]
				mu.Unlock()
			}
			return nil
		})
	}
	wg.Wait()
	f.balances()
	f.want("SELECT sum(delivered) || ' ' || sum(failed) FROM ferry.purged", fmt.Sprint(purged[message.StatusDelivered], " ", purged[message.StatusFailed]))
	if purged[message.StatusDelivered] == 0 || purged[message.StatusFailed] == 0 {
		t.Error("purged", purged)
	}
	t.Log(next, "records,", f.value("SELECT sum(stored) || ' stored, ' || sum(duplicates) || ' duplicates' FROM ferry.ledger"), "purged", purged)
}

func (f *fixture) ids(sql string) ([]int64, error) {
	rows, err := f.store.Pool().Query(f.Context(), sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

const partitions = `SELECT string_agg(inhrelid::regclass::text, ' ' ORDER BY inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'ferry.attempts'::regclass`

// A day's attempts are dropped when it ended longer ago than they are kept, and not before; so are strays of such days.
func TestDropAttempts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	const insert = `INSERT INTO ferry.attempts (message_id, attempt, counted, started_at, duration_ms, verdict, forwarder)
		SELECT 1, 1, true, ($1::timestamptz AT TIME ZONE 'UTC' + make_interval(days => i))  AT TIME ZONE 'UTC', 1, 'delivered', 'f1' FROM generate_series(0, 5) AS i`
	now, err := f.store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := now.UTC().Truncate(24*time.Hour).AddDate(0, 0, -5)
	if err := f.store.EnsureAttemptPartitions(t.Context(), first.AddDate(0, 0, 1), 5); err != nil {
		t.Fatal(err)
	}
	f.exec(insert, first) // the first day is in the default partition
	name := func(i int) string { return "ferry.attempts_" + first.AddDate(0, 0, i).Format("20060102") }
	drop := func(keep time.Duration) store.DroppedAttempts {
		t.Helper()
		d, err := f.store.DropAttempts(t.Context(), keep)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	// To the moment at which the second day ended, less a minute; a second more than that; and a minute more.
	sinceSecond := now.Sub(first.AddDate(0, 0, 2))
	if d := drop(sinceSecond + time.Minute); len(d.Days) != 0 || d.Rows != 1 || d.Busy {
		t.Errorf("%+v", d)
	}
	f.want(partitions, fmt.Sprint(name(1), " ", name(2), " ", name(3), " ", name(4), " ", name(5), " ferry.attempts_default"))
	if d := drop(sinceSecond - time.Minute); fmt.Sprint(d.Days) != "["+first.AddDate(0, 0, 1).Format(time.DateOnly)+"]" || d.Rows != 0 {
		t.Errorf("%+v", d)
	}
	f.want("SELECT count(*) || ' ' || min(started_at AT TIME ZONE 'UTC')::date FROM ferry.attempts", "4 "+first.AddDate(0, 0, 2).Format(time.DateOnly))
	if d := drop(0); len(d.Days) != 3 {
		t.Errorf("%+v", d)
	}
	f.want(partitions, name(5)+" ferry.attempts_default") // today's is never over
}

// Somebody reads attempts for long: dropping gives up within a second, in which nobody else waits for longer; and works
// once he is done.
func TestDropAttemptsGivesUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	if err := f.store.EnsureAttemptPartitions(t.Context(), time.Now().AddDate(0, 0, -3), 4); err != nil {
		t.Fatal(err)
	}
	tx, err := f.store.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM ferry.attempts"); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	d, err := f.store.DropAttempts(t.Context(), time.Hour)
	if err != nil || !d.Busy || len(d.Days) != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("gave up after %v", took)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, err := f.store.DropAttempts(t.Context(), time.Hour); err != nil || d.Busy || len(d.Days) < 2 {
		t.Errorf("%+v, %v", d, err)
	}
}
