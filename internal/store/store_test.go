package store_test

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

const group = "ferry"

// fixture is a store on a database of its own.
type fixture struct {
	*testing.T
	store *store.Store
	url   string
}

func newFixture(t *testing.T, jobSize int) *fixture {
	t.Helper()
	url := pgtest.New(t)
	f := &fixture{T: t, url: url, store: open(t, store.Config{URL: url, JobSizes: map[string]int{"a": jobSize, "b": jobSize}})}
	f.begin(group, at(1, 0))
	return f
}

// at is a position in events/0.
func at(id byte, next int64) message.StoredPosition {
	return message.StoredPosition{TopicPartition: tp0, TopicID: message.TopicID{id}, NextOffset: next}
}

// begin makes the rows of partitions.
func (f *fixture) begin(group string, positions ...message.StoredPosition) {
	f.Helper()
	var changes []message.PositionChange
	for _, p := range positions {
		changes = append(changes, message.PositionChange{StoredPosition: p})
	}
	if err := f.store.ChangePositions(f.Context(), group, changes); err != nil {
		f.Fatal(err)
	}
}

// set moves the row of events/0.
func (f *fixture) set(was, to message.StoredPosition) {
	f.Helper()
	if err := f.store.ChangePositions(f.Context(), group, []message.PositionChange{{StoredPosition: to, Was: &was}}); err != nil {
		f.Fatal(err)
	}
}

func open(t *testing.T, cfg store.Config) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// value returns what a query gives, as text; empty for null.
func (f *fixture) value(sql string, args ...any) string {
	f.Helper()
	var v *string
	if err := f.store.Pool().QueryRow(f.Context(), "SELECT ("+sql+")::text", args...).Scan(&v); err != nil {
		f.Fatalf("%s: %v", sql, err)
	}
	if v == nil {
		return ""
	}
	return *v
}

func (f *fixture) exec(sql string, args ...any) {
	f.Helper()
	if _, err := f.store.Pool().Exec(f.Context(), sql, args...); err != nil {
		f.Fatalf("%s: %v", sql, err)
	}
}

func (f *fixture) want(sql, want string) {
	f.Helper()
	if got := f.value(sql); got != want {
		f.Errorf("%s = %q, want %q", sql, got, want)
	}
}

func (f *fixture) save(b *message.Batch) *message.Saved {
	f.Helper()
	saved, err := f.store.Save(f.Context(), b)
	if err != nil {
		f.Fatal(err)
	}
	f.ledgerHolds()
	return saved
}

// ledgerHolds compares the ledger with the rows.
func (f *fixture) ledgerHolds() {
	f.Helper()
	f.want(`SELECT count(*) FROM ferry.ledger WHERE consumed <> stored + duplicates + filtered + skipped_tombstones`, "0")
	f.want(`SELECT count(*) FROM (
		SELECT route, topic, topic_id, partition, sum(stored) AS stored FROM ferry.ledger GROUP BY 1, 2, 3, 4) l
		FULL JOIN (SELECT route, topic, topic_id, partition, sum(n) AS rows FROM (
			SELECT route, topic, topic_id, partition, count(*) AS n FROM ferry.messages GROUP BY 1, 2, 3, 4
			UNION ALL SELECT route, topic, topic_id, partition, delivered + failed FROM ferry.purged) r GROUP BY 1, 2, 3, 4) m
		USING (route, topic, topic_id, partition) WHERE COALESCE(stored, 0) <> COALESCE(rows, 0)`, "0")
	f.want(`SELECT count(*) FROM ferry.messages m FULL JOIN ferry.deliveries d ON d.message_id = m.id WHERE m.id IS NULL OR d.message_id IS NULL`, "0")
	f.want(`SELECT count(*) FROM ferry.deliveries d FULL JOIN ferry.failures f USING (message_id)
		WHERE (d.status = 'failed') <> (f.message_id IS NOT NULL)`, "0")
	f.want(`SELECT count(*) FROM ferry.deliveries d LEFT JOIN ferry.river_job j ON j.id = d.job_id
		WHERE d.status = 'pending' AND NOT COALESCE(j.args -> 'ids' @> to_jsonb(d.message_id), false)`, "0")
}

var tp0 = message.TopicPartition{Topic: "events", Partition: 0}

func pos(offset int64) message.Position {
	return message.Position{TopicPartition: tp0, TopicID: message.TopicID{1}, Offset: offset}
}

func record(offset int64, value string) *message.Record {
	return &message.Record{Position: pos(offset), Key: []byte("k"), Value: []byte(value), Timestamp: time.UnixMilli(1_700_000_000_000)}
}

func incoming(route, key string, r *message.Record) message.Incoming {
	return message.Incoming{Route: route, Key: key, Record: r, Result: message.IngestStored}
}

// batch is one of n records of route a with keys key-<offset> from offset from on.
func batch(from, n int64) *message.Batch {
	b := &message.Batch{Group: group, Advances: []message.Advance{{TopicPartition: tp0, TopicID: message.TopicID{1}, From: from, To: from + n}}}
	for o := from; o < from+n; o++ {
		b.Incoming = append(b.Incoming, incoming("a", fmt.Sprintf("key-%d", o), record(o, fmt.Sprintf(`{"n":%d}`, o))))
	}
	return b
}

func TestOpen(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	if err := f.store.CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
	if err := f.store.CheckDurability(t.Context()); err != nil {
		t.Error(err)
	}
	if err := f.store.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"statement_timeout": "30s", "lock_timeout": "10s", "idle_in_transaction_session_timeout": "30s", "application_name": "ferry",
	} {
		f.want("SELECT current_setting('"+name+"')", want)
	}
}
