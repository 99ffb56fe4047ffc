package observe

import "github.com/ferry-forward/ferry/internal/message"

// Breaker shows the state of a route's breaker: 1 for the state it is in, 0 for the others.
func (m *Metrics) Breaker(route string, state message.BreakerState) {
	for _, s := range message.BreakerStates() {
		is := 0.0
		if s == state {
			is = 1
		}
		m.breakers.WithLabelValues(route, s.String()).Set(is)
	}
}
