package store

import (
	"context"
	"fmt"
	"net"
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

// setLimits sets the limits of one transaction: behind a pooler that refuses them at the start of a connection.
func (s *Store) setLimits(ctx context.Context, tx pgx.Tx) error {
	if !s.cfg.PollOnly {
		return nil
	}
	_, err := tx.Exec(ctx, `SELECT pg_catalog.set_config('statement_timeout', $1, true),
		pg_catalog.set_config('lock_timeout', $2, true),
		pg_catalog.set_config('idle_in_transaction_session_timeout', $3, true)`,
		ms(statementTimeout), ms(lockTimeout), ms(idleInTxTimeout))
	return err
}

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
