package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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

const partitionLayout = "attempts_20060102"

func partitionName(d time.Time) string { return d.Format(partitionLayout) }

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

// DroppedAttempts is what DropAttempts did.
type DroppedAttempts struct {
	Days []string // the partitions that it dropped, by day
	Rows int64    // the rows that it deleted from the default partition
	// Busy says that others used attempts for so long that a partition could not be dropped. The next call tries again.
	Busy bool
}

const (
	// dropLock bounds each wait for a lock of dropping a partition: attempts, the partition, the default one. Who writes
	// attempts waits meanwhile.
	dropLock = 300 * time.Millisecond
	// strayBatch bounds the rows that are deleted from the default partition at once.
	strayBatch = 10_000
)

// DropAttempts drops the partitions of days (UTC) that ended longer ago than keep, by the database's clock, and deletes
// attempts of that age from the default partition, some at each call.
func (s *Store) DropAttempts(ctx context.Context, keep time.Duration) (DroppedAttempts, error) {
	var done DroppedAttempts
	now, err := s.Now(ctx)
	if err != nil {
		return done, err
	}
	before := now.Add(-keep)
	days, err := s.attemptDays(ctx)
	if err != nil {
		return done, err
	}
	for _, d := range days {
		if d.Add(day).After(before) {
			continue
		}
		err := s.dropPartition(ctx, d)
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "55P03" { // lock_not_available
			done.Busy = true
			break
		}
		if err != nil {
			return done, err
		}
		done.Days = append(done.Days, d.Format(time.DateOnly))
	}
	done.Rows, err = s.deleteStray(ctx, before.UTC().Truncate(day))
	return done, err
}

// attemptDays returns the days that have a partition, the oldest first.
func (s *Store) attemptDays(ctx context.Context) ([]time.Time, error) {
	const op = "listing the partitions of attempts"
	rows, err := s.pool.Query(ctx, `SELECT c.relname::text FROM pg_catalog.pg_inherits AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
		WHERE i.inhparent = 'ferry.attempts'::regclass ORDER BY c.relname`)
	if err != nil {
		return nil, wrap(op, err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, wrap(op, err)
	}
	var days []time.Time
	for _, name := range names {
		if d, err := time.Parse(partitionLayout, name); err == nil { // else the default one, or somebody's own
			days = append(days, d)
		}
	}
	return days, nil
}

// dropPartition takes ACCESS EXCLUSIVE on attempts, which every settling transaction writes. DETACH … CONCURRENTLY would
// not, but is not to be had where there is a default partition. So it waits for a moment only, as nobody can write while
// it waits, and gives up when there is a long reader.
func (s *Store) dropPartition(ctx context.Context, d time.Time) error {
	return s.inTx(ctx, "dropping the partition of attempts for "+d.Format(time.DateOnly), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = "+ms(dropLock)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "DROP TABLE IF EXISTS ferry."+partitionName(d)) // another forwarder may have dropped it
		return err
	})
}

func (s *Store) deleteStray(ctx context.Context, before time.Time) (n int64, err error) {
	const op = "deleting attempts from the default partition"
	err = s.inTx(ctx, op, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `DELETE FROM ferry.attempts_default WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM ferry.attempts_default WHERE started_at < $1 LIMIT $2))`, before, strayBatch)
		n = tag.RowsAffected()
		return err
	})
	return n, err
}
