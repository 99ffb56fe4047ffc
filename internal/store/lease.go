package store

import (
	"context"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store/storedb"
)

// Lease takes permits of a rate limit that all forwarders share, or none (see message.Lease). It is one statement, and
// must not be tried again without thought: an answer that was lost may have been a lease.
func (s *Store) Lease(ctx context.Context, ask message.LeaseAsk) (message.Lease, error) {
	params := storedb.LeaseParams{
		Route: ask.Route, PerSecond: ask.PerSecond, Burst: int32Of(int64(ask.Burst)), N: int32Of(int64(ask.N)),
		Most: int32Of(int64(ask.Most)), Ahead: ask.Ahead.Seconds(),
		UnusedFrom: stamp(ask.Unused.From), UnusedEnd: stamp(ask.Unused.End),
	}
	for {
		var row storedb.LeaseRow
		if err := s.again(ctx, "leasing requests of route "+ask.Route, func() (err error) {
			row, err = s.q.Lease(ctx, s.pool, params)
			return err
		}); err != nil {
			return message.Lease{}, err
		}
		if !row.LeasedAt.Valid {
			continue // made the row
		}
		granted := time.Duration(float64(row.Granted) / ask.PerSecond * float64(time.Second))
		l := message.Lease{N: int(row.Granted), Now: row.LeasedAt.Time, Start: row.NextAt.Time.Add(-granted), End: row.NextAt.Time}
		if l.N == 0 {
			l.Wait = max(0, l.Start.Sub(l.Now)-ask.Ahead)
		}
		return l, nil
	}
}

// GiveBack returns permits that will not be used, unless somebody has leased what comes behind them.
func (s *Store) GiveBack(ctx context.Context, route string, u message.Unused) error {
	return s.again(ctx, "giving back requests of route "+route, func() error {
		return s.q.LeaseGiveBack(ctx, s.pool, stamp(u.From), route, stamp(u.End))
	})
}
