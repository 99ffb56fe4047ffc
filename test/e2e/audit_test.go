package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// The sums hold at every moment, on a real Kafka too: while records come, some requests fail, and both binaries are killed and
// started again.
func TestAuditUnderLoad(t *testing.T) {
	t.Parallel()
	c := kafkatest.Real(t)
	const n, rounds = 3000, 2
	e := newEnv(t, c, 3)
	e.receiver = receivertest.New(t, receivertest.Options{Answer: func(r *receivertest.Request) receivertest.Answer {
		if r.N%5 == 0 {
			return receivertest.Status(500).After(time.Millisecond)
		}
		return receivertest.Status(200).After(2 * time.Millisecond)
	}})
	e.writeRoutes(fmt.Sprintf(routeFile, e.topic, e.receiver.URL()))
	balanced := func(when string) {
		t.Helper()
		stdout, stderr, code := e.command("audit")
		if code != 0 || stderr != "" {
			t.Fatalf("%s: exit %d\n%s%s", when, code, stdout, stderr)
		}
	}
	in, fw := e.ingester(), e.forwarder()
	e.is(patience, "1", "SELECT count(*)::text FROM ferry.forwarders")
	balanced("at rest")
	for round := range rounds {
		e.produce(round*n, n, 3)
		balanced("under load")
		in.Kill()
		balanced("without the ingester")
		fw.Kill()
		balanced("without the forwarder")
		in, fw = e.ingester(), e.forwarder()
		balanced("started again")
	}
	e.is(rescuePatience, fmt.Sprint(rounds*n), delivered)
	kafkatest.Wait(t, "all offsets committed", func() bool { return c.Lag(t, e.group, e.topic) == 0 })
	balanced("at the end")
}
