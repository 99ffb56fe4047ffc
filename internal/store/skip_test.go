package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
)

func standsAt(id byte, next int64) message.StoredPosition {
	return message.StoredPosition{TopicPartition: tp0, TopicID: message.TopicID{id}, NextOffset: next}
}

const positionRow = `SELECT get_byte(uuid_send(topic_id), 0) || ' at ' || next_offset || ' skipped ' || skipped || ' expired ' || expired_unread FROM ferry.positions`

func TestSkipTo(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		row   string // topic id and next offset
		to    message.StoredPosition
		moved bool
		want  string
	}{
		"forward":                {"1, 10", standsAt(1, 14), true, "1 at 14 skipped 11 expired 3"},
		"where it stands":        {"1, 10", standsAt(1, 10), false, "1 at 10 skipped 7 expired 3"},
		"backwards":              {"1, 10", standsAt(1, 9), false, "1 at 10 skipped 7 expired 3"},
		"a topic made again":     {"2, 10", standsAt(1, 14), false, "2 at 10 skipped 7 expired 3"},
		"a row without topic id": {"0, 10", standsAt(1, 14), true, "1 at 14 skipped 11 expired 3"},
		"neither has a topic id": {"0, 10", standsAt(0, 14), true, "0 at 14 skipped 11 expired 3"},
		"brokers without ids":    {"1, 10", standsAt(0, 14), false, "1 at 10 skipped 7 expired 3"},
		"as far as it goes":      {"1, 0", standsAt(1, 1<<62), true, "1 at 4611686018427387904 skipped 4611686018427387911 expired 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 20)
			f.exec(`DELETE FROM ferry.positions`)
			f.exec(`INSERT INTO ferry.positions ("group", topic, partition, topic_id, next_offset, skipped, expired_unread, updated_at)
				SELECT 'ferry', 'events', 0, (lpad(to_hex(id), 2, '0') || repeat('0', 30))::uuid, next, 7, 3, now() - interval '1 day'
				FROM (VALUES (` + test.row + `::bigint)) AS r (id, next)`)
			before := f.value("SELECT topic_id || ' ' || next_offset FROM ferry.positions")
			was, moved, err := f.store.SkipTo(t.Context(), group, test.to)
			if err != nil || moved != test.moved || was == nil {
				t.Fatal(was, moved, err)
			}
			if got := was.TopicID.String() + " " + f.value("SELECT $1::bigint", was.NextOffset); got != before {
				t.Errorf("it says that the row was %s; it was %s", got, before)
			}
			f.want(positionRow, test.want)
			if touched := f.value("SELECT updated_at > now() - interval '1 hour' FROM ferry.positions"); touched != f.value("SELECT $1::bool", moved) {
				t.Errorf("updated: %s", touched)
			}
		})
	}
}

func TestSkipToWithoutRow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.exec(`DELETE FROM ferry.positions`)
	if was, moved, err := f.store.SkipTo(t.Context(), group, standsAt(1, 5)); was != nil || moved || err != nil {
		t.Error(was, moved, err)
	}
	f.want("SELECT count(*) FROM ferry.positions", "0")
	if err := f.store.ChangePositions(t.Context(), group, []message.PositionChange{{StoredPosition: standsAt(1, 3)}}); err != nil {
		t.Fatal(err)
	}
	if _, moved, err := f.store.SkipTo(t.Context(), "another", standsAt(1, 5)); moved || err != nil {
		t.Error("it moved the row of another group", err)
	}
	if _, moved, err := f.store.SkipTo(t.Context(), group, standsAt(1, 5)); !moved || err != nil {
		t.Error(moved, err)
	}
	f.want(positionRow, "1 at 5 skipped 2 expired 0")
}

// TestSkipAgainstAnIngester is the race of a skip and a transaction that stores records, in both orders.
func TestSkipAgainstAnIngester(t *testing.T) {
	t.Parallel()
	t.Run("the ingester is first", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, 20)
		f.save(batch(0, 10))
		f.hold("UPDATE ferry.positions SET next_offset = 20", func() {
			if was, moved, err := f.store.SkipTo(t.Context(), group, standsAt(1, 15)); err != nil || moved || was.NextOffset != 20 {
				t.Error(was, moved, err)
			}
		})
		f.want(positionRow, "1 at 20 skipped 0 expired 0")
	})
	t.Run("the ingester is first, and not as far", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, 20)
		f.save(batch(0, 10))
		f.hold("UPDATE ferry.positions SET next_offset = 12", func() {
			if was, moved, err := f.store.SkipTo(t.Context(), group, standsAt(1, 15)); err != nil || !moved || was.NextOffset != 12 {
				t.Error(was, moved, err)
			}
		})
		f.want(positionRow, "1 at 15 skipped 3 expired 0")
	})
	t.Run("the skip is first", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, 20)
		f.save(batch(0, 10))
		f.hold("UPDATE ferry.positions SET next_offset = 15, skipped = 5", func() {
			f.moved(open(t, store.Config{URL: f.url}), batch(10, 10))
		})
		f.save(batch(15, 5))
		f.want(positionRow, "1 at 20 skipped 5 expired 0")
	})
}

// hold runs do while a transaction has run sql; it is committed when do waits for it.
func (f *fixture) hold(sql string, do func()) {
	f.Helper()
	tx, err := f.store.Pool().Begin(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(f.Context())) }()
	if _, err := tx.Exec(f.Context(), sql); err != nil {
		f.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	kafkatest.Wait(f, "the other transaction to wait", func() bool {
		return f.value(`SELECT count(*) FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a USING (pid)
			WHERE NOT l.granted AND a.datname = current_database()`) != "0"
	})
	if err := tx.Commit(f.Context()); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		f.Error(err)
	}
	<-done
}
