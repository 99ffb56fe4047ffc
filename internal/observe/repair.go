package observe

import "time"

// Reconciled counts messages that reconcile took up.
func (m *Metrics) Reconciled(n int) { m.reconciled.Add(float64(n)) }

// ClockSkew sets how far the database's clock is ahead of this host's.
func (m *Metrics) ClockSkew(d time.Duration) { m.clockSkew.Set(d.Seconds()) }
