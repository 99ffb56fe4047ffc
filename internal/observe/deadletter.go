package observe

import "github.com/ferry-forward/ferry/internal/message"

// DeadLetter counts one try to write a dead letter of a route.
func (m *Metrics) DeadLetter(route string, result message.DeadLetterResult) {
	m.deadLetters.WithLabelValues(route, result.String()).Inc()
}

// serveDeadLetters makes the series of the routes that have dead letters.
func (m *Metrics) serveDeadLetters() {
	m.registry.MustRegister(m.deadLetters)
	for _, route := range m.options.DeadLetters {
		for _, result := range message.DeadLetterResults() {
			m.deadLetters.WithLabelValues(route, result.String())
		}
	}
}
