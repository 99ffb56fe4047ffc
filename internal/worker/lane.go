package worker

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/ferry-forward/ferry/internal/route"
)

const (
	// ahead is how many messages are in memory for each request that may be in flight.
	ahead = 4
	// laneBytes bounds the payloads of one route in memory. A larger message goes alone.
	laneBytes = 32 << 20
)

// lane is what the runs of one route share. Both semaphores are first come, first served, so that neither new messages
// nor retries starve.
type lane struct {
	route     *route.Route
	deliverer Deliverer
	metrics   Metrics

	messages *semaphore.Weighted // messages in memory
	bytes    *semaphore.Weighted // their payloads
	permits  *semaphore.Weighted // requests in flight, until their outcome is stored
	inFlight atomic.Int64
}

func newLane(l Lane, m Metrics) *lane {
	n := int64(l.Route.Concurrency)
	m.Slots(l.Route.Name, 0, l.Route.Concurrency)
	return &lane{
		route: l.Route, deliverer: l.Deliverer, metrics: m,
		messages: semaphore.NewWeighted(ahead * n),
		bytes:    semaphore.NewWeighted(laneBytes),
		permits:  semaphore.NewWeighted(n),
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

// permit takes the right to send one request, which is given back when its outcome is stored.
func (l *lane) permit(ctx context.Context) error {
	if err := l.permits.Acquire(ctx, 1); err != nil {
		return err
	}
	l.count(1)
	return nil
}

func (l *lane) release() {
	l.count(-1)
	l.permits.Release(1)
}

func (l *lane) count(delta int) {
	used := l.inFlight.Add(int64(delta))
	l.metrics.InFlight(l.route.Name, delta)
	l.metrics.Slots(l.route.Name, int(used), l.route.Concurrency)
}
