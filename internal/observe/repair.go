package observe

import (
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

// Reconciled counts messages that reconcile took up.
func (m *Metrics) Reconciled(n int) { m.reconciled.Add(float64(n)) }

// Purged counts messages of a route that were deleted after their retention.
func (m *Metrics) Purged(route string, status message.Status, n int64) {
	m.purged.WithLabelValues(route, status.String()).Add(float64(n))
}

// ClockSkew sets how far the database's clock is ahead of this host's.
func (m *Metrics) ClockSkew(d time.Duration) { m.clockSkew.Set(d.Seconds()) }
