package worker

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/ferry-forward/ferry/internal/route"
)

const (
	// ahead is how many messages are in memory for each request that may be in flight.
	ahead = 4
	// laneBytes bounds the payloads of one route in memory. A larger message goes alone.
	laneBytes = 32 << 20
)

// lane is what the runs of one route share. Both semaphores are first come, first served.
type lane struct {
	route     *route.Route
	deliverer Deliverer

	messages *semaphore.Weighted // messages in memory
	bytes    *semaphore.Weighted // their payloads
	gate     *gate               // requests in flight, until their outcome is stored
}

func newLane(l Lane, m Metrics) *lane {
	name, n := l.Route.Name, l.Route.Concurrency
	m.Slots(name, 0, n)
	before := 0
	return &lane{
		route: l.Route, deliverer: l.Deliverer,
		messages: semaphore.NewWeighted(ahead * int64(n)),
		bytes:    semaphore.NewWeighted(laneBytes),
		gate: &gate{
			breaker: l.Breaker, limit: l.Limit, holdMax: l.Route.Breaker.HoldMax,
			changed: func(inFlight int) {
				m.InFlight(name, inFlight-before)
				m.Slots(name, inFlight, n)
				before = inFlight
			},
		},
	}
}

// admit reserves memory for a job's messages before they are loaded. Everybody takes messages before bytes: a run that
// waits for bytes waits only for runs that have both, and those end.
func (l *lane) admit(ctx context.Context, messages int, payload int64) (release func(), err error) {
	n := min(int64(messages), ahead*int64(l.route.Concurrency))
	if err := l.messages.Acquire(ctx, n); err != nil {
		return nil, err
	}
	b := min(payload, laneBytes)
	if err := l.bytes.Acquire(ctx, b); err != nil {
		l.messages.Release(n)
		return nil, err
	}
	return func() { l.bytes.Release(b); l.messages.Release(n) }, nil
}
