package forward_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// A server closes each connection shortly after it answered, and records come just a little more rarely than that: the
// worst moment for a kept connection. All arrive, none fails, and no attempt is more than one request.
func TestServerClosesConnectionsAfterAnswering(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{5 * time.Millisecond, 6 * time.Millisecond} {
		const records = 500
		g := rigOn(t, "", receivertest.Options{IdleTimeout: 5 * time.Millisecond})
		tick := time.NewTicker(pause)
		defer tick.Stop()
		burnt, sent := 0, 0
		for i := range records {
			<-tick.C
			m := record("{}")
			m.Key = strconv.Itoa(i)
			del := due()
			for del.Status == message.StatusPending {
				got := g.Deliver(context.Background(), m, del)
				sent++
				if got.Counted {
					del.Attempts++
				}
				del.Status = got.Status
				if got.Status == message.StatusFailed {
					t.Fatalf("record %d: %+v %+v", i, got, got.Attempt)
				}
			}
			burnt += del.Attempts - 1
		}
		if g.Keys() != records || g.Count() > sent {
			t.Errorf("%d records arrived in %d requests; %d were sent", g.Keys(), g.Count(), sent)
		}
		t.Logf("%d attempts burnt, %d connections", burnt, g.Conns())
	}
}
