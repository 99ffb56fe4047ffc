package store_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
)

// again is a batch of records of route a that are read once more.
func again(from, n int64, missing map[string]message.Missing) *message.Batch {
	b := batch(from, n)
	b.Advances, b.Again = nil, &message.Again{Missing: missing}
	return b
}

func (f *fixture) missing(from, end int64) map[string]message.Missing {
	f.Helper()
	missing, _, err := f.store.Missing(f.Context(), pos(from), end, []string{"a", "b"})
	if err != nil {
		f.Fatal(err)
	}
	return missing
}

// lose deletes messages of route a by hand.
func (f *fixture) lose(where string) {
	f.Helper()
	f.exec(`WITH m AS (DELETE FROM ferry.messages AS m WHERE m.route = 'a' AND ` + where + ` RETURNING m.id),
		f AS (DELETE FROM ferry.failures AS f USING m WHERE f.message_id = m.id)
		DELETE FROM ferry.deliveries AS d USING m WHERE d.message_id = m.id`)
}

// TestMissing says which records can have been stored before: those from the first message on, and those before it if
// the reads that the ledger counts reach that far.
func TestMissing(t *testing.T) {
	t.Parallel()
	const all = 1 << 40
	for name, test := range map[string]struct {
		lost      string
		from, end int64
		want      int64 // messages
		first     int64 // offset
	}{
		"nothing lost":                   {`false`, 0, 120, 0, 0},
		"in the middle":                  {`m."offset" IN (110, 111)`, 0, 120, 2, 100},
		"in the middle, read from there": {`m."offset" IN (110, 111)`, 110, 120, 2, 100},
		"at the beginning":               {`m."offset" < 104`, 100, 120, 4, 100},
		"before the beginning as well":   {`m."offset" < 104`, 99, 120, 4, 104},
		"from further on":                {`m."offset" < 104`, 102, 120, 4, 102},
		"everything":                     {`true`, 100, 120, 20, 100},
		"everything, from before":        {`true`, 99, 120, 20, 120},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 20)
			f.exec("UPDATE ferry.positions SET next_offset = 100")
			f.save(batch(100, 20))
			f.lose(test.lost)
			want := map[string]message.Missing{}
			if test.want > 0 {
				want["a"] = message.Missing{Messages: test.want, From: test.first}
			}
			if got := f.missing(test.from, test.end); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%+v, want %+v", got, want)
			}
			for _, other := range []message.Position{
				{TopicPartition: message.TopicPartition{Topic: "events", Partition: 1}, TopicID: message.TopicID{1}},
				{TopicPartition: tp0, TopicID: message.TopicID{2}},
				{TopicPartition: tp0},
			} {
				if got, _, err := f.store.Missing(t.Context(), other, all, []string{"a", "b"}); err != nil || len(got) > 0 {
					t.Errorf("%v: %v, %v", other, got, err)
				}
			}
		})
	}
}

// TestMissingCountsWhatWasPurged as there, and tells it.
func TestMissingCountsWhatWasPurged(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.save(batch(0, 20))
	f.lose(`m."offset" < 12`)
	f.exec(`INSERT INTO ferry.purged (route, topic, topic_id, partition, delivered, failed) SELECT route, topic, topic_id, partition, 7, 2 FROM ferry.ledger`)
	missing, purged, err := f.store.Missing(t.Context(), pos(0), 20, []string{"a", "b"})
	if err != nil || fmt.Sprint(missing, purged) != "map[a:{3 0 0 0}] map[a:9]" {
		t.Error(missing, purged, err)
	}
}

// TestMissingWithoutTopicIDs: brokers without topic ids give all topics the same.
func TestMissingWithoutTopicIDs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	for _, topic := range []string{"one", "two"} {
		b := batch(0, 10)
		b.Advances = nil
		for i := range b.Incoming {
			b.Incoming[i].Key += topic
			b.Incoming[i].Record.Topic, b.Incoming[i].Record.TopicID = topic, message.TopicID{}
		}
		f.save(b)
	}
	f.lose(`m.topic = 'one' AND m."offset" = 5`)
	at := message.Position{TopicPartition: message.TopicPartition{Topic: "one"}}
	if got, _, err := f.store.Missing(t.Context(), at, 10, []string{"a"}); err != nil || fmt.Sprint(got) != "map[a:{1 0 0 0}]" {
		t.Error(got, err)
	}
	at.Topic = "two"
	if got, _, err := f.store.Missing(t.Context(), at, 10, []string{"a"}); err != nil || len(got) > 0 {
		t.Error(got, err)
	}
}

// TestSaveReread puts back what is missing and books it where it was, and stores what is new as new.
func TestSaveReread(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.exec("UPDATE ferry.positions SET next_offset = 10")
	f.save(batch(10, 10))
	f.lose(`m."offset" IN (12, 15, 19)`)
	missing := f.missing(0, 20)
	saved, err := f.store.Save(t.Context(), again(0, 16, missing))
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(missing, saved.Missing) != "map[a:{3 10 0 0}] map[a:{1 10 0 0}]" {
		t.Errorf("%v, left %v", missing, saved.Missing)
	}
	f.want("SELECT consumed || ' ' || stored || ' ' || duplicates FROM ferry.ledger", "26 20 6")
	f.want("SELECT count(*) FROM ferry.messages", "19")
	f.want("SELECT next_offset FROM ferry.positions", "20")
	// A transaction that is rolled back changes nothing of what it was given.
	f.exec("ALTER TABLE ferry.ledger ADD CONSTRAINT no CHECK (consumed < 30)")
	if _, err := f.store.Save(t.Context(), again(16, 4, saved.Missing)); err == nil || fmt.Sprint(saved.Missing) != "map[a:{1 10 0 0}]" {
		t.Error(err, saved.Missing)
	}
	f.exec("ALTER TABLE ferry.ledger DROP CONSTRAINT no")
	again16 := again(16, 4, saved.Missing)
	if saved = f.save(again16); saved.Missing["a"].Messages != 0 {
		t.Error(saved.Missing)
	}
	f.want("SELECT consumed || ' ' || stored || ' ' || duplicates FROM ferry.ledger", "30 20 10")
	saved = f.save(again(0, 20, saved.Missing))
	f.want("SELECT consumed || ' ' || stored || ' ' || duplicates FROM ferry.ledger", "50 20 30")
	if fmt.Sprint(f.missing(0, 20), saved.Conflicts) != "map[] []" {
		t.Error(f.missing(0, 20), saved.Conflicts)
	}
}

// TestSaveRereadWhatWasSettled: the tallies count a message that comes back no longer as what it was when it was deleted.
func TestSaveRereadWhatWasSettled(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	b := batch(0, 10)
	b.Incoming[8].Key, b.Incoming[9].Key = "key-0", "key-0" // conflicts
	f.save(b)
	settle := func(status, reason, ids string) {
		f.exec(`WITH d AS (UPDATE ferry.deliveries SET status = '` + status + `', reason = NULLIF('` + reason + `', ''), settled_at = now() WHERE message_id IN ` + ids + ` RETURNING message_id),
			f AS (INSERT INTO ferry.failures (message_id, route, reason) SELECT message_id, 'a', '` + reason + `' FROM d WHERE '` + status + `' = 'failed')
			INSERT INTO ferry.tallies (slot, route, ` + status + `) SELECT 7, 'a', count(*) FROM d ON CONFLICT (slot, route) DO UPDATE SET ` + status + ` = excluded.` + status)
	}
	settle("delivered", "", `(2, 3, 4)`)
	settle("failed", "rejected", `(5, 6)`)
	before := f.counts()
	if before != (store.Counts{Pending: 3, Delivered: 3, Failed: 4}) {
		t.Fatalf("%+v", before)
	}
	f.lose(`m.id IN (2, 3, 5, 7, 9)`) // two delivered, one failed, one pending, one conflict
	missing := f.missing(0, 10)
	if fmt.Sprint(missing) != "map[a:{5 0 2 2}]" {
		t.Fatal(missing)
	}
	put := again(8, 1, missing)
	put.Incoming[0].Key = "key-0"
	saved, err := f.store.Save(t.Context(), put)
	if err != nil || fmt.Sprint(saved.Results, saved.Missing) != "[conflict] map[a:{4 0 2 1}]" {
		t.Fatal(saved, err)
	}
	put = again(0, 10, saved.Missing)
	put.Incoming[8].Key, put.Incoming[9].Key = "key-0", "key-0"
	saved = f.save(put)
	if fmt.Sprint(saved.Missing) != "map[a:{0 0 0 0}]" {
		t.Errorf("left: %v", saved.Missing)
	}
	if got, want := f.counts(), (store.Counts{Pending: 6, Delivered: 1, Failed: 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	f.want(`SELECT count(*) FILTER (WHERE status = 'pending') || ' ' || count(*) FILTER (WHERE status = 'delivered') || ' ' ||
		count(*) FILTER (WHERE status = 'failed') FROM ferry.deliveries`, "6 1 3")
}

func (f *fixture) counts() store.Counts {
	f.Helper()
	counts, err := f.store.Counts(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	return counts["a"]
}

// TestSaveRereadWhatWasRefused deletes the failed message of a record only where there is a new one, and only if it is still
// failed for that reason.
func TestSaveRereadWhatWasRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	b := batch(0, 6)
	for _, i := range []int{1, 2, 3, 4} {
		b.Incoming[i].Result, b.Incoming[i].Detail = message.IngestUnstorable, "refused"
	}
	f.save(b)
	f.exec(`UPDATE ferry.deliveries SET reason = 'cancelled' WHERE message_id = 4`)
	f.exec(`UPDATE ferry.failures SET reason = 'cancelled' WHERE message_id = 4`)
	f.exec(`UPDATE ferry.deliveries SET reason = 'rejected' WHERE message_id = 5`) // as if another were at it
	put := again(0, 6, map[string]message.Missing{"a": {Messages: 1}})             // another one
	put.Incoming[2].Result = message.IngestFiltered                                // the filter is another one today
	put.Incoming[1].Key = "another"                                                // and so is the key
	f.exec(`ALTER TABLE ferry.deliveries ADD CONSTRAINT no CHECK (job_id IS NULL OR message_id < 7)`)
	var e *store.Error
	if _, err := f.store.Save(t.Context(), put); !errors.As(err, &e) || !e.RowFault() {
		t.Fatal(err)
	}
	f.want(`SELECT count(*) FROM ferry.message_status WHERE reason = 'unstorable'`, "2")
	f.want(`SELECT count(*) FROM ferry.purged`, "0")
	f.exec(`ALTER TABLE ferry.deliveries DROP CONSTRAINT no`)
	saved, err := f.store.Save(t.Context(), put)
	if err != nil || fmt.Sprint(saved.Results, saved.Missing) != "[duplicate stored filtered duplicate duplicate duplicate] map[a:{1 0 0 0}]" {
		t.Fatal(saved, err)
	}
	f.want(`SELECT array_agg(message_key || ' ' || status || ' ' || COALESCE(reason, '') ORDER BY message_id)
		FROM ferry.message_status WHERE "offset" IN (1, 2)`, `{"key-2 failed unstorable","another pending "}`)
	f.want(`SELECT topic || ' ' || partition || ' ' || delivered || ' ' || failed FROM ferry.purged`, "events 0 0 1")
	f.want(`SELECT consumed || ' ' || stored || ' ' || duplicates || ' ' || unstorable || ' ' || filtered FROM ferry.ledger`, "12 7 4 4 1")
	f.want(`SELECT count(*) + (SELECT sum(failed) FROM ferry.purged) FROM ferry.messages`, "7")
	if got := f.counts(); got != (store.Counts{Pending: 3, Failed: 3}) {
		t.Errorf("%+v", got)
	}
}
