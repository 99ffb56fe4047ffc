package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// A route with a retention of seconds: what is settled goes, what waits stays, the audit balances, and a record that comes
// again after that is a new message, which the ingester has warned of.
func TestRetentionOfMessages(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 2)
	e.topic = kafkatest.Name("events")
	e.kafka.CreateTopic(t, e.topic, 2, map[string]string{"retention.ms": "3600000"})
	e.writeRoutes(fmt.Sprintf(strings.Replace(routeFile, "    retry: {initial: 200ms, max: 2s,",
		"    breaker: {enabled: false}\n    retention: {delivered: 3s, failed: 2s}\n    retry: {initial: 30m, max: 30m,", 1),
		e.topic, e.receiver.URL()))
	e.receiver.Answer(func(r *receivertest.Request) receivertest.Answer {
		switch number(r.Key) % 10 {
		case 0:
			return receivertest.Status(400)
		case 1:
			return receivertest.Status(500)
		}
		return receivertest.Status(200)
	})
	in := e.ingester(kafkaConfig(quick))
	in.WaitLog(e.topic+" 1h (route events: 2s)", patience)
	fw := e.forwarder()
	e.produce(0, 100, 2)
	const settled = `SELECT count(*) FILTER (WHERE status = 'delivered') || ' ' || count(*) FILTER (WHERE status = 'failed') FROM ferry.deliveries`
	const sums = `SELECT coalesce(sum(delivered), 0) || ' ' || coalesce(sum(failed), 0) FROM ferry.purged`
	e.is(patience, "90", `SELECT sum(delivered + failed)::text FROM ferry.tallies`)
	e.is(patience, "10", `SELECT count(*)::text FROM ferry.deliveries WHERE requests = 1 AND status = 'pending'`)
	e.is(rescuePatience, "80 10", sums) // the next run comes in a minute
	e.is(patience, "0 0", settled)
	e.is(patience, "10", messages)
	e.is(patience, "10", `SELECT count(*)::text FROM ferry.message_status WHERE status = 'pending'`)
	fw.WaitLog("messages past their retention are purged", patience)
	e.metric(fw, `ferry_purged_total{route="events",status="delivered"}`, 80)
	e.metric(fw, `ferry_purged_total{route="events",status="failed"}`, 10)
	e.metric(fw, `ferry_messages{route="events",state="delivered"}`, 0)
	e.produce(0, 100, 2) // the keys that are gone, and 10 that are there
	e.is(patience, "190 10", `SELECT sum(stored) || ' ' || sum(duplicates) FROM ferry.ledger`)
	e.is(patience, "180", `SELECT sum(delivered + failed)::text FROM ferry.tallies`)
	cmd := exec.Command(binaries.Path(t, "forwarder"), "audit")
	cmd.Env = append(cmd.Environ(), e.common()...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("audit: %v\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
}
