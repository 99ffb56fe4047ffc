package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Error is an error of the database, with what was being done.
type Error struct {
	Op  string // what was being done
	Err error
	// commit: the error came from COMMIT, so that nobody knows whether the transaction took place.
	commit bool
}

// Error says what was being done and what went wrong.
func (e *Error) Error() string { return fmt.Sprintf("%s: %v", e.Op, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Transient says whether the cause lies outside the data: the database is away, full, read-only, being restarted or
// migrated, or the statement met another one. The same call may succeed later; no record is to blame, and none may be
// skipped or failed for it. False: the database refuses a value (or the caller gave up).
func (e *Error) Transient() bool { return !errors.Is(e.Err, context.Canceled) && !e.RowFault() }

// RowFault says whether the database refused a value. Run with fewer rows, the call succeeds for the others.
func (e *Error) RowFault() bool {
	var pg *pgconn.PgError
	if !errors.As(e.Err, &pg) {
		return false
	}
	switch class(pg) {
	case "22", // data exception: bytes that are no text, numbers out of range, JSON that is none
		"23", // integrity constraint violation
		"54": // program limit exceeded: an index row or a value too large
		return true
	}
	return false
}

// SafeToRetry says whether surely nothing was changed: the transaction was rolled back, or never reached the server.
// False after a connection was lost during the commit; Save and Settle may be called again even then (see the package).
func (e *Error) SafeToRetry() bool {
	var pg *pgconn.PgError
	if errors.As(e.Err, &pg) {
		return !e.commit || class(pg) == "40"
	}
	return !e.commit || pgconn.SafeToRetry(e.Err)
}

// retryNow says whether the transaction is to be run again at once.
func (e *Error) retryNow() bool {
	if errors.Is(e.Err, errVanished) {
		return true
	}
	var pg *pgconn.PgError
	if !errors.As(e.Err, &pg) {
		return false
	}
	switch {
	case pg.Code == "40001", pg.Code == "40P01": // serialization failure, deadlock
		return true
	case pg.Code == "0A000" && pg.Routine == "RevalidateCachedQuery":
		// "cached plan must not change result type": a migration has changed a table. pgx plans anew after it.
		return true
	}
	return false
}

func class(pg *pgconn.PgError) string {
	if len(pg.Code) < 2 {
		return ""
	}
	return pg.Code[:2]
}

// commitError marks an error of COMMIT.
type commitError struct{ err error }

func (e *commitError) Error() string { return "committing: " + e.err.Error() }
func (e *commitError) Unwrap() error { return e.err }

// wrap makes an *Error of err, unless it is one.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	var ce *commitError
	return &Error{Op: op, Err: err, commit: errors.As(err, &ce)}
}
