package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/ferry-forward/ferry/internal/migrate"
	"github.com/ferry-forward/ferry/internal/store/storedb"
)

// Config says how to reach the database.
type Config struct {
	// URL is the database's, in any form that pgx reads.
	URL string
	// JobSizes is how many new messages of a route go into one job. Routes that are not in it get 1.
	JobSizes map[string]int
	// DeadLetters has the routes whose failed messages get dead letters, each with its topic.
	DeadLetters map[string]string
	// MaxConns limits the pool. Default: 10.
	MaxConns int
	// PollOnly is for PgBouncer in transaction mode and its like: no startup parameters (limits are set in each
	// transaction instead) and no named prepared statements.
	PollOnly bool
	// AppName is the application_name of the connections. Default: ferry.
	AppName string
	// Logger is told about what is retried. Default: discard.
	Logger *slog.Logger
}

// Store is a pool of connections to one database. It is safe for concurrent use.
type Store struct {
	pool  *pgxpool.Pool
	q     *storedb.Queries
	jobs  *river.Client[pgx.Tx] // inserts only
	cfg   Config
	begin string // begins a transaction; see beginSQL
	steps listSteps
}

// jobNotifyCooldown is the shortest time between two notifications of new jobs to the forwarders of a queue.
const jobNotifyCooldown = 5 * time.Millisecond

var errDurability = errors.New("synchronous_commit is off on this database, so that a crash could lose messages whose " +
	"offsets are committed; set it to on (ALTER DATABASE … SET synchronous_commit = on, or for the user)")

// Open reads the configuration and makes a pool that connects when it is first used: it does not fail because the
// database is away. Close it.
//
// Each connection limits a statement to 30 s, a wait for a lock to 10 s, an idle transaction to 30 s, and sent data
// that nobody acknowledges to 30 s: a transaction whose process froze or lost its network blocks others for seconds.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	pc, err := poolConfig(cfg)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	jobs, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Schema: migrate.Schema, FetchCooldown: jobNotifyCooldown, Logger: cfg.Logger, SkipUnknownJobCheck: true,
	})
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("making the client that inserts jobs: %w", err)
	}
	s := &Store{pool: pool, q: storedb.New(), jobs: jobs, cfg: cfg, begin: beginSQL(cfg.PollOnly), steps: defaultSteps()}
	return s, nil
}

// Close closes the pool, waiting for the connections in use.
func (s *Store) Close() { s.pool.Close() }

// Pool returns the pool, for River's driver.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// SchemaError says that this binary and the schema of the database do not go together, and what to run.
type SchemaError = migrate.SchemaError

// CheckSchema returns a *SchemaError when this binary must not run on the database.
func (s *Store) CheckSchema(ctx context.Context) error {
	if err := migrate.CheckCompatible(ctx, s.pool); err != nil {
		var se *SchemaError
		if errors.As(err, &se) {
			return se
		}
		return wrap("checking the schema", err)
	}
	return nil
}

// CheckDurability refuses a database that tells of commits before they are on disk.
func (s *Store) CheckDurability(ctx context.Context) error {
	v, err := s.q.SynchronousCommit(ctx, s.pool)
	if err != nil {
		return wrap("reading synchronous_commit", err)
	}
	if v == "off" {
		return errDurability
	}
	return nil
}

// Ping says whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.pool.Ping(ctx); err != nil {
		return wrap("asking the database", err)
	}
	return nil
}
