package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store/storedb"
)

// Counts are the messages of one route by state.
type Counts struct{ Pending, Delivered, Failed int64 }

// Counts returns the messages of each route by state. It reads sums, never the history.
func (s *Store) Counts(ctx context.Context) (map[string]Counts, error) {
	var rows []storedb.CountsRow
	if err := s.again(ctx, "counting messages", func() (err error) {
		rows, err = s.q.Counts(ctx, s.pool)
		return err
	}); err != nil {
		return nil, err
	}
	counts := make(map[string]Counts, len(rows))
	for _, r := range rows {
		counts[r.Route] = Counts{Pending: r.Pending, Delivered: r.Delivered, Failed: r.Failed}
	}
	return counts, nil
}

// Forwarder is one running forwarder.
type Forwarder struct {
	ID, Version string
	Routes      []string
	RescueAfter time.Duration // after which one of its running jobs may be taken to be lost
}

// Heartbeat notes that the forwarder is alive and which routes it works.
func (s *Store) Heartbeat(ctx context.Context, f Forwarder) error {
	if f.Routes == nil {
		f.Routes = []string{}
	}
	return s.inTx(ctx, "writing the forwarder's sign of life", func(tx pgx.Tx) error {
		return s.q.ForwarderSeen(ctx, tx, storedb.ForwarderSeenParams{
			ID: message.Clean(f.ID, maxText), Version: message.Clean(f.Version, maxText), Routes: f.Routes,
			RescueAfterMs: pgtype.Int8{Int64: f.RescueAfter.Milliseconds(), Valid: f.RescueAfter > 0},
		})
	})
}

// Now returns the database's clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	now, err := s.q.Now(ctx, s.pool)
	if err != nil {
		return time.Time{}, wrap("reading the database's clock", err)
	}
	return now.Time, nil
}
