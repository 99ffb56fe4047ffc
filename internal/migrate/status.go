package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	ferrysql "github.com/ferry-forward/ferry/sql"
)

// DB is what a check needs of a connection or a pool.
type DB interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// State is where a database stands, and what this binary knows.
type State struct {
	Version int      // newest migration applied; 0: none
	Mark    int      // the oldest schema number that a binary must know to run on it
	Known   int      // newest migration of this binary
	River   int      // newest of River's migrations applied; 0: none
	Pending []string // what Up would apply, as 0002_name and river 8
}

// Known returns the number of the newest migration of this binary.
func Known() (int, error) {
	all, err := load(ferrysql.Migrations)
	if err != nil {
		return 0, err
	}
	return all[len(all)-1].version, nil
}

// Status tells where the database stands. It changes nothing.
func Status(ctx context.Context, db DB) (*State, error) {
	all, err := load(ferrysql.Migrations)
	if err != nil {
		return nil, err
	}
	done, err := applied(ctx, db)
	if err != nil {
		return nil, err
	}
	s := &State{Known: all[len(all)-1].version}
	for v, mark := range done {
		s.Version, s.Mark = max(s.Version, v), max(s.Mark, mark)
	}
	if s.River, err = riverApplied(ctx, db); err != nil {
		return nil, err
	}
	for v := s.River + 1; v <= RiverVersion; v++ {
		s.Pending = append(s.Pending, fmt.Sprintf("river %d", v))
	}
	for _, m := range all {
		if _, ok := done[m.version]; !ok {
			s.Pending = append(s.Pending, fmt.Sprintf("%04d_%s", m.version, m.name))
		}
	}
	return s, nil
}

// SchemaError says that a binary and the schema of its database do not go together, and what to run.
type SchemaError struct {
	State
	TooNew    bool // the schema wants a newer binary; else a migration is missing
	Migrating bool // and is about to come: somebody migrates just now
}

// Error says what to run.
func (e *SchemaError) Error() string {
	switch {
	case e.TooNew:
		return fmt.Sprintf("the database schema is at version %d and needs a binary that knows version %d, this one knows %d: run a newer release of Ferry",
			e.Version, e.Mark, e.Known)
	case e.Version == 0:
		return "the database has no Ferry schema: run forwarder migrate up"
	case e.Version < Minimum:
		return fmt.Sprintf("the database schema is at version %d, this binary needs %d: run forwarder migrate up", e.Version, Minimum)
	default:
		return fmt.Sprintf("River's tables are at version %d, this binary needs %d: run forwarder migrate up", e.River, RiverVersion)
	}
}

// CheckCompatible returns a *SchemaError when this binary must not run on the database.
func CheckCompatible(ctx context.Context, db DB) error {
	s, err := Status(ctx, db)
	if err != nil {
		return err
	}
	err = s.check()
	var found *SchemaError
	if !errors.As(err, &found) || found.TooNew {
		return err
	}
	return found.look(ctx, db)
}

// look says whether the missing migrations are being applied:
//
//	us: version 1       migrator: applies 2, 3, gives its lock back       us: nobody has the lock
//
// So when nobody has the lock, the version must still be the same.
func (e *SchemaError) look(ctx context.Context, db DB) error {
	if err := db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_locks
		WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND classid = $1::bigint::oid AND objid = $2::bigint::oid
			AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))`,
		int64(lockKey)>>32, int64(lockKey)&0xffffffff).Scan(&e.Migrating); err != nil {
		return fmt.Errorf("looking whether somebody migrates: %w", err)
	}
	if e.Migrating {
		return e
	}
	again, err := Status(ctx, db)
	if err != nil {
		return err
	}
	if err := again.check(); err == nil || again.Version == e.Version && again.River == e.River {
		return err
	}
	e.State, e.Migrating = *again, true
	return e
}

func (s *State) check() error {
	if s.Mark > s.Known {
		return &SchemaError{State: *s, TooNew: true}
	}
	if s.Version < Minimum || s.River < RiverVersion {
		return &SchemaError{State: *s}
	}
	return nil
}

// applied returns the must-know of each migration that was applied.
func applied(ctx context.Context, db DB) (map[int]int, error) {
	done := map[int]int{}
	there, err := exists(ctx, db, "ferry.schema_versions")
	if err != nil || !there {
		return done, err
	}
	rows, err := db.Query(ctx, "SELECT version, must_know FROM ferry.schema_versions")
	if err != nil {
		return nil, fmt.Errorf("reading the schema version: %w", err)
	}
	var version, mustKnow int
	if _, err := pgx.ForEachRow(rows, []any{&version, &mustKnow}, func() error {
		done[version] = mustKnow
		return nil
	}); err != nil {
		return nil, fmt.Errorf("reading the schema version: %w", err)
	}
	return done, nil
}

func riverApplied(ctx context.Context, db DB) (int, error) {
	there, err := exists(ctx, db, "ferry.river_migration")
	if err != nil || !there {
		return 0, err
	}
	var v int

	err = db.QueryRow(ctx, "SELECT COALESCE(max(version), 0)::int FROM ferry.river_migration").Scan(&v)
	if err != nil {
		return 0, fmt.Errorf("reading the version of River's tables: %w", err)
	}
	return v, nil
}

func exists(ctx context.Context, db DB, table string) (bool, error) {
	var there bool
	if err := db.QueryRow(ctx, "SELECT pg_catalog.to_regclass($1) IS NOT NULL", table).Scan(&there); err != nil {
		return false, fmt.Errorf("looking for %s: %w", table, err)
	}
	return there, nil
}
