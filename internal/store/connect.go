package store

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The limits of every connection.
const (
	statementTimeout = 30 * time.Second
	lockTimeout      = 10 * time.Second
	idleInTxTimeout  = 30 * time.Second
	// userTimeout is how long sent data may stay unacknowledged, and how long a silent peer is taken to be alive.
	userTimeout    = 30 * time.Second
	connectTimeout = 10 * time.Second
	defaultConns   = 10
)

func poolConfig(cfg Config) (*pgxpool.Config, error) {
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("reading the database URL: %w", err) // pgx leaves the password out
	}
	pc.MaxConns = defaultConns
	if cfg.MaxConns > 0 {
		pc.MaxConns = int32(min(cfg.MaxConns, 10_000))
	}
	cc := pc.ConnConfig
	cc.RuntimeParams["application_name"] = "ferry"
	if cfg.AppName != "" {
		cc.RuntimeParams["application_name"] = cfg.AppName
	}
	if cc.ConnectTimeout == 0 {
		cc.ConnectTimeout = connectTimeout
	}
	dialer := &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4},
		Control:         setUserTimeout,
	}
	cc.DialFunc = dialer.DialContext
	if cfg.PollOnly {
		cc.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		return pc, nil
	}
	for name, d := range limits() {
		if _, set := cc.RuntimeParams[name]; !set { // the URL may say otherwise
			cc.RuntimeParams[name] = ms(d)
		}
	}
	return pc, nil
}

func limits() map[string]time.Duration {
	return map[string]time.Duration{
		"statement_timeout": statementTimeout, "lock_timeout": lockTimeout, "idle_in_transaction_session_timeout": idleInTxTimeout,
	}
}

// beginSQL begins a transaction, and sets in the same round trip what holds for it alone.
//
// Each statement is planned for its rows. A plan that is kept would be the one of the first minute, when the tables
// were empty and reading them whole was cheap; it would then read them whole until they are analyzed.
func beginSQL(pollOnly bool) string {
	sql := "begin isolation level read committed"
	if !pollOnly {
		return sql + "; set local plan_cache_mode = force_custom_plan"
	}
	// Behind a pooler that refuses startup parameters. Without named statements, no plan is kept anyway.
	for _, name := range slices.Sorted(maps.Keys(limits())) {
		sql += "; set local " + name + " = " + ms(limits()[name])
	}
	return sql
}

// snapshotSQL begins a transaction that reads one snapshot and locks nothing, with a limit of its own for a statement. It
// leaves the other processors alone: the traffic needs them.
func snapshotSQL(pollOnly bool, statement time.Duration) string {
	sql := "begin isolation level repeatable read read only; set local statement_timeout = " + ms(statement) +
		"; set local plan_cache_mode = force_custom_plan; set local max_parallel_workers_per_gather = 0; set local jit = off"
	if pollOnly {
		sql += "; set local lock_timeout = " + ms(lockTimeout) + "; set local idle_in_transaction_session_timeout = " + ms(idleInTxTimeout)
	}
	return sql
}

// planned is the pool with statements that are planned each time, as in transactions.
type planned struct{ *pgxpool.Pool }

// Query runs a statement without a name, for which no plan is kept.
func (p planned) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return p.Pool.Query(ctx, sql, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...)
}

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
