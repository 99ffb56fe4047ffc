// Package migrate brings the database to the schema that the binaries work on: River's tables and Ferry's, both in the
// schema ferry.
//
// The order of an upgrade is: migrate, then replace the binaries, one after another. Old and new ones run side by side,
// also when an upgrade is rolled back: so each migration records the oldest schema number that a binary must know to
// run on it (must-know in its header), and a binary starts if the schema is at least Minimum and its mark at most Known.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	ferrysql "github.com/ferry-forward/ferry/sql"
)

const (
	// Schema is the schema of every table, River's included. It is named in every query.
	Schema = "ferry"
	// Minimum is the oldest schema number that this binary works on.
	Minimum = 4
	// RiverVersion is the newest of River's migrations that this binary brings. When an update of River has another, a
	// migration of Ferry's goes with it, whose must-know says whether older binaries go on working.
	RiverVersion = 8
)

const (
	// lockKey names the advisory lock under which migrations run, in all versions of Ferry: "ferry" in ASCII.
	lockKey = 0x6665727279
	// LockWait is how long a migration waits for another one to end.
	LockWait = 2 * time.Minute
	// tableLockTimeout bounds how long a migration waits for a table: everything that comes after waits behind it.
	tableLockTimeout = "30s"
)

var (
	errLocked = errors.New(
		"another migration runs on this database; wait until it ends, or end its session (application_name ferry-migrate)")
	errNoDown = errors.New("the migration is not of this version; use the binary that applied it")
)

// Up applies what is missing of River's migrations and of Ferry's. It may be run twice, and side by side: a session
// advisory lock makes the second one wait, and then it finds nothing to do. Two River migrators without it collide:
//
//	A: reads river_migration: none          B: reads river_migration: none
//	A: CREATE TABLE river_job …, commits
//	                                        B: CREATE TABLE river_job … → error, although all is well
func Up(ctx context.Context, url string, logger *slog.Logger) error {
	return run(ctx, url, logger, (*migrator).up)
}

// Down takes Ferry's migrations back until the schema is at version, with the data in what they made. River's tables
// stay until version is 0: then its schema goes as well.
func Down(ctx context.Context, url string, version int, logger *slog.Logger) error {
	return run(ctx, url, logger, func(m *migrator, ctx context.Context) error { return m.down(ctx, version) })
}

type migrator struct {
	conn   *pgx.Conn // holds the lock
	river  *rivermigrate.Migrator[pgx.Tx]
	all    []migration
	logger *slog.Logger
}

func run(ctx context.Context, url string, logger *slog.Logger, do func(*migrator, context.Context) error) error {
	all, err := load(ferrysql.Migrations)
	if err != nil {
		return err
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("reading the database URL: %w", err)
	}
	cfg.MaxConns = 2 // River's migrator has its own beside the one with the lock
	cfg.ConnConfig.RuntimeParams["application_name"] = "ferry-migrate"
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "SELECT pg_catalog.set_config('lock_timeout', $1, false), "+
			"pg_catalog.set_config('statement_timeout', '0', false)", tableLockTimeout)
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("connecting to the database: %w", err)
	}
	defer pool.Close()
	river, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: Schema, Logger: logger})
	if err != nil {
		return fmt.Errorf("reading River's migrations: %w", err)
	}
	c, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connecting to the database: %w", err)
	}
	conn := c.Hijack() // closed at the end, with its lock, whatever happened
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	m := &migrator{conn: conn, river: river, all: all, logger: logger}
	if err := m.lock(ctx); err != nil {
		return err
	}
	return do(m, ctx)
}

// lock polls: a session that waits inside pg_advisory_lock holds a snapshot, for which a CREATE INDEX CONCURRENTLY of
// the migration it waits for would wait in turn.
func (m *migrator) lock(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, LockWait, errLocked)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for told := false; ; told = true {
		var got bool
		err := m.conn.QueryRow(ctx, "SELECT pg_catalog.pg_try_advisory_lock($1)", int64(lockKey)).Scan(&got)
		if err != nil {
			return fmt.Errorf("locking the schema: %w", err)
		}
		if got {
			return nil
		}
		if !told {
			m.logger.Info("another migration runs on this database, waiting for it")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("locking the schema: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func (m *migrator) up(ctx context.Context) error {
	if err := m.prepare(ctx); err != nil {
		return err
	}
	res, err := m.river.Migrate(ctx, rivermigrate.DirectionUp, nil)
	if err != nil {
		return fmt.Errorf("applying River's migrations: %w", err)
	}
	for _, v := range res.Versions {
		m.logger.Info("River's migration applied", "version", v.Version, "name", v.Name)
	}
	done, err := applied(ctx, m.conn)
	if err != nil {
		return err
	}
	for _, mig := range m.all {
		if _, ok := done[mig.version]; ok {
			continue
		}
		if err := m.apply(ctx, mig.up, "INSERT INTO ferry.schema_versions (version, name, must_know) VALUES ($1, $2, $3)",
			mig.version, mig.name, mig.mustKnow); err != nil {
			return fmt.Errorf("applying migration %04d_%s: %w", mig.version, mig.name, err)
		}
		m.logger.Info("migration applied", "version", mig.version, "name", mig.name)
	}
	return nil
}

// prepare makes the schema, unless it is there: CREATE SCHEMA IF NOT EXISTS asks for the right to create one even then.
func (m *migrator) prepare(ctx context.Context) error {
	var there bool
	err := m.conn.QueryRow(ctx, "SELECT pg_catalog.to_regnamespace($1) IS NOT NULL", Schema).Scan(&there)
	if err != nil {
		return fmt.Errorf("looking for schema %s: %w", Schema, err)
	}
	if !there {
		if _, err := m.conn.Exec(ctx, "CREATE SCHEMA "+Schema); err != nil {
			return fmt.Errorf("making schema %s: %w", Schema, err)
		}
	}
	if err := m.conn.QueryRow(ctx, "SELECT pg_catalog.to_regclass('ferry.schema_versions') IS NOT NULL").Scan(&there); err != nil {
		return fmt.Errorf("looking for ferry.schema_versions: %w", err)
	}
	if there {
		return nil
	}
	if _, err := m.conn.PgConn().Exec(ctx, ferrysql.Versions).ReadAll(); err != nil {
		return fmt.Errorf("making ferry.schema_versions: %w", err)
	}
	return nil
}

func (m *migrator) down(ctx context.Context, version int) error {
	done, err := applied(ctx, m.conn)
	if err != nil {
		return err
	}
	for i := len(m.all) - 1; i >= 0; i-- {
		mig := m.all[i]
		if _, ok := done[mig.version]; !ok || mig.version <= version {
			continue
		}
		delete(done, mig.version)
		if err := m.apply(ctx, mig.down, "DELETE FROM ferry.schema_versions WHERE version = $1", mig.version); err != nil {
			return fmt.Errorf("taking back migration %04d_%s: %w", mig.version, mig.name, err)
		}
		m.logger.Info("migration taken back", "version", mig.version, "name", mig.name)
	}
	for v := range done {
		if v > version {
			return fmt.Errorf("taking back migration %04d: %w", v, errNoDown)
		}
	}
	if version > 0 {
		return nil
	}
	if _, err := m.river.Migrate(ctx, rivermigrate.DirectionDown, &rivermigrate.MigrateOpts{TargetVersion: -1}); err != nil {
		return fmt.Errorf("taking back River's migrations: %w", err)
	}
	if _, err := m.conn.Exec(ctx, "DROP TABLE IF EXISTS ferry.schema_versions"); err != nil {
		return fmt.Errorf("dropping ferry.schema_versions: %w", err)
	}
	return nil
}

// apply runs one migration and its record in one transaction.
func (m *migrator) apply(ctx context.Context, script, record string, args ...any) error {
	return pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) error {
		if _, err := tx.Conn().PgConn().Exec(ctx, script).ReadAll(); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, record, args...)
		return err
	})
}
