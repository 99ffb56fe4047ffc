package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// partitionLock is the advisory lock under which partitions are made: "ferryp" in ASCII.
const partitionLock = 0x666572727970

const day = 24 * time.Hour

// EnsureAttemptPartitions makes the partitions of attempts for days days (UTC) from the day of from on, as far as they
// are missing. It may run beside others, and beside inserts.
func (s *Store) EnsureAttemptPartitions(ctx context.Context, from time.Time, days int) error {
	first := from.UTC().Truncate(day)
	for i := range days {
		d := first.AddDate(0, 0, i)
		op := "making the partition of attempts for " + d.Format(time.DateOnly)
		there, err := attached(ctx, s.pool, d)
		if err != nil {
			return wrap(op, err)
		}
		if there {
			continue
		}
		if err := s.inTx(ctx, op, func(tx pgx.Tx) error { return addPartition(ctx, tx, d) }); err != nil {
			return err
		}
	}
	return nil
}

func partitionName(d time.Time) string { return "attempts_" + d.Format("20060102") }

type queryRower interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func attached(ctx context.Context, db queryRower, d time.Time) (bool, error) {
	var there bool
	err := db.QueryRow(ctx, `SELECT EXISTS (
		SELECT FROM pg_catalog.pg_inherits
		WHERE inhparent = 'ferry.attempts'::regclass AND inhrelid = pg_catalog.to_regclass($1))`,
		"ferry."+partitionName(d)).Scan(&there)
	return there, err
}

// addPartition makes a table apart and attaches it, because CREATE TABLE … PARTITION OF would lock out every reader and
// writer of attempts. Rows of the day that came before their partition are moved out of the default one, which is locked
// first: what were inserted there between the move and the attaching would make the attaching fail.
func addPartition(ctx context.Context, tx pgx.Tx, d time.Time) error {
	// Two forwarders start at once, and both find the day missing:
	//
	//	A: not attached             B: not attached
	//	A: CREATE TABLE, commits    B: CREATE TABLE → exists already
	//
	// Under the lock, B looks again after A has committed.
	if _, err := tx.Exec(ctx, "SELECT pg_catalog.pg_advisory_xact_lock($1)", int64(partitionLock)); err != nil {
		return err
	}
	if there, err := attached(ctx, tx, d); err != nil || there {
		return err
	}
	table := "ferry." + partitionName(d)
	lower, upper := bound(d), bound(d.Add(day))
	for _, sql := range []string{
		// With the check, attaching need not read the table.
		fmt.Sprintf("CREATE TABLE %s (LIKE ferry.attempts INCLUDING DEFAULTS INCLUDING CONSTRAINTS, "+
			"CONSTRAINT day_check CHECK (started_at IS NOT NULL AND started_at >= %s AND started_at < %s))", table, lower, upper),
		"LOCK TABLE ferry.attempts_default IN ACCESS EXCLUSIVE MODE",
		fmt.Sprintf("WITH moved AS (DELETE FROM ferry.attempts_default WHERE started_at >= %s AND started_at < %s RETURNING *) "+
			"INSERT INTO %s SELECT * FROM moved", lower, upper, table),
		fmt.Sprintf("ALTER TABLE ferry.attempts ATTACH PARTITION %s FOR VALUES FROM (%s) TO (%s)", table, lower, upper),
		fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT day_check", table),
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func bound(t time.Time) string { return "TIMESTAMPTZ '" + t.Format("2006-01-02 15:04:05") + "+00'" }
