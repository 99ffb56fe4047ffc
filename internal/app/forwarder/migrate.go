package forwarder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/config"
	"github.com/ferry-forward/ferry/internal/migrate"
	"github.com/ferry-forward/ferry/internal/observe"
)

const (
	// awayAfter is how long a command waits for the database.
	awayAfter = 10 * time.Second
	// tryEvery is the time between two attempts to connect.
	tryEvery = 500 * time.Millisecond
	// statusTime bounds the questions of migrate status.
	statusTime = 30 * time.Second
)

var (
	errAway       = errors.New("the database was away for 10 s")
	errStatusTime = errors.New("the database did not answer within 30 s")
	errPending    = errors.New("the schema is not current: run forwarder migrate up")
)

func migrateCommand() *cobra.Command {
	return app.Group("migrate", "Make or show the database schema",
		&cobra.Command{
			Use: "up", Short: "Apply what is missing of the schema; safe to run twice and side by side", Args: app.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return migrateUp(cmd) },
		},
		&cobra.Command{
			Use: "status", Short: "Show what is applied and what is missing (exit code 1 if anything is)", Args: app.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return migrateStatus(cmd) },
		})
}

func migrateUp(cmd *cobra.Command) error {
	cfg, conn, err := connect(cmd.Context())
	if err != nil {
		return err
	}
	closeConn(cmd.Context(), conn)
	log, err := observe.NewLog(cmd.ErrOrStderr(), observe.LogOptions{Level: cfg.LogLevel, Format: cfg.LogFormat})
	if err != nil {
		return app.Usage(err)
	}
	if err := migrate.Up(cmd.Context(), cfg.DatabaseURL.Reveal(), log.Logger); err != nil {
		return judge(cmd.Context(), err)
	}
	log.Info("the schema is current")
	return nil
}

func migrateStatus(cmd *cobra.Command) error {
	_, conn, err := connect(cmd.Context())
	if err != nil {
		return err
	}
	defer closeConn(cmd.Context(), conn)
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), statusTime, errStatusTime)
	defer cancel()
	status, err := migrate.Status(ctx, conn)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return app.Unknown(fmt.Errorf("reading the schema version: %w", err))
	}
	if err := writeStatus(cmd.OutOrStdout(), status); err != nil {
		return app.Unknown(fmt.Errorf("printing: %w", err))
	}
	if len(status.Pending) > 0 {
		return app.Finding(errPending)
	}
	if status.Mark > status.Known {
		return app.Finding(&migrate.SchemaError{State: *status, TooNew: true})
	}
	return nil
}

func writeStatus(w io.Writer, s *migrate.State) error {
	pending := "none"
	if len(s.Pending) > 0 {
		pending = strings.Join(s.Pending, ", ")
	}
	_, err := fmt.Fprintf(w, "schema version  %d (this binary knows %d; binaries must know at least %d)\nRiver's version %d (this binary brings %d)\npending         %s\n",
		s.Version, s.Known, s.Mark, s.River, migrate.RiverVersion, pending)
	return err
}

// connect reads the settings and connects to the database, for which it waits awayAfter.
func connect(ctx context.Context) (*config.Forwarder, *pgx.Conn, error) {
	cfg, err := config.LoadForwarder()
	if err != nil {
		return nil, nil, app.Usage(err)
	}
	conf, err := pgx.ParseConfig(cfg.DatabaseURL.Reveal())
	if err != nil {
		return nil, nil, app.Usage(fmt.Errorf("reading the database URL: %w; set FERRY_DATABASE_URL", err))
	}
	conf.RuntimeParams["application_name"] = "ferry-migrate"
	waiting, cancel := context.WithTimeoutCause(ctx, awayAfter, errAway)
	defer cancel()
	for {
		conn, err := pgx.ConnectConfig(waiting, conf)
		if err == nil {
			return cfg, conn, nil
		}
		select {
		case <-waiting.Done():
			if ctx.Err() != nil {
				return nil, nil, fmt.Errorf("connecting to the database: %w", context.Cause(ctx))
			}
			return nil, nil, app.Unknown(fmt.Errorf("%w: %w; check FERRY_DATABASE_URL and the database", errAway, err))
		case <-time.After(tryEvery):
		}
	}
}

func closeConn(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // nothing is open on it
}

// judge decides the exit code of a migration that did not end well: the database's own word is a finding, everything
// else means that nobody knows.
func judge(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("migrating: %w", context.Cause(ctx))
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return app.Finding(fmt.Errorf("migrating: %w", err))
	}
	return app.Unknown(fmt.Errorf("migrating: %w", err))
}
