package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ferry-forward/ferry/internal/message"
)

// txTries is how often a transaction is run that the database asks to run again.
const txTries = 6

// errVanished asks for the transaction to be run again: a row that was in the way of an insert was gone when it was read.
var errVanished = errors.New("a message with an equal key was purged meanwhile")

// inTx runs do in a transaction of its own, READ COMMITTED, and again when the database says that it met another one.
// do may therefore run several times and must set whatever it sets anew. Errors come back as *Error, but
// *message.PositionsMovedError as it is.
func (s *Store) inTx(ctx context.Context, op string, do func(pgx.Tx) error) error {
	return s.again(ctx, op, func() error { return s.once(ctx, s.begin, do) })
}

// again runs do, and runs it again while the database asks for that.
func (s *Store) again(ctx context.Context, op string, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		var moved *message.PositionsMovedError
		if err == nil || errors.As(err, &moved) {
			return err
		}
		err = wrap(op, err)
		var e *Error
		if !errors.As(err, &e) || !e.retryNow() || try == txTries {
			return err
		}
		s.cfg.Logger.Debug("running a statement again", "error", err, "try", try)
		// Spread, or the same two meet again.
		pause := time.NewTimer(time.Duration(rand.IntN(5<<try)+1) * time.Millisecond) //nolint:gosec // no secret
		select {
		case <-ctx.Done():
			pause.Stop()
			return err
		case <-pause.C:
		}
	}
}

func (s *Store) once(ctx context.Context, begin string, do func(pgx.Tx) error) error {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin})
	if err != nil {
		return err
	}
	// Without the caller's context: the connection goes back to the pool instead of being closed.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
		defer cancel()
		_ = tx.Rollback(ctx) // after a commit, nothing
	}()
	if err := do(tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return &commitError{err}
	}
	return nil
}
