package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// night runs the commands of docs/operating.md on a real installation.
type night struct {
	*env
	log strings.Builder
}

// run runs a command of one of the binaries and wants its exit code and words in what it prints.
func (n *night) run(code int, words []string, binary string, args ...string) string {
	n.t.Helper()
	settings := append(n.common(), "FERRY_LOG_LEVEL=error", "FERRY_KAFKA_BROKERS="+n.brokers, "FERRY_KAFKA_GROUP="+n.group)
	stdout, stderr, got := proctest.Run(n.t, binaries.Path(n.t, binary), settings, args...)
	var line strings.Builder
	for _, a := range args {
		if strings.ContainsAny(a, " #*|") {
			a = "'" + a + "'"
		}
		line.WriteString(" " + a)
	}
	_, _ = fmt.Fprintf(&n.log, "$ %s%s\n%s%s(exit %d)\n\n", binary, line.String(), stdout, stderr, got)
	if got != code {
		n.t.Errorf("%s%s ended with %d, want %d\n%s%s", binary, line.String(), got, code, stdout, stderr)
	}
	for _, w := range words {
		if !strings.Contains(stdout+stderr, w) {
			n.t.Errorf("%s%s: no %q in\n%s%s", binary, line.String(), w, stdout, stderr)
		}
	}
	return stdout
}

func (n *night) title(s string) { _, _ = fmt.Fprintf(&n.log, "## %s\n\n", s) }

const nightRoutes = `version: 1
routes:
  - name: vehicle-event
    topics: [device-vehicle-event]
    message_key: .messageId
    retry: {initial: 200ms, max: 1s, max_attempts: 3}
    http: {timeout: 2s, connect_timeout: 1s}
    request:
      method: POST
      url: %s/mch/business
      body: |
        {id: .messageId, park: .parkCode}
    response: {error_code: .body.errcode}
`

// The ten situations of a night shift, as docs/operating.md has them: FERRY_NIGHT=FILE keeps what the commands print.
func TestNightShift(t *testing.T) {
	t.Parallel()
	n := &night{env: newEnv(t, kafkatest.Fake(t), 1)}
	if file := os.Getenv("FERRY_NIGHT"); file != "" {
		t.Cleanup(func() { _ = os.WriteFile(file, []byte(n.log.String()), 0o600) })
	}
	n.topic = "device-vehicle-event"
	n.kafka.CreateTopic(t, n.topic, 1, nil)
	n.writeRoutes(fmt.Sprintf(nightRoutes, n.receiver.URL()))
	n.receiver.Always(receivertest.JSON(`{"result":0}`))
	in, fw := n.ingester(), n.forwarder()
	event := func(i int) string { return fmt.Sprintf(`{"messageId":"ev-%d","parkCode":"P%d"}`, i, i%5) }
	produce := func(values ...string) {
		var records []kafkatest.Record
		for _, v := range values {
			records = append(records, kafkatest.Record{Key: []byte("P1"), Value: []byte(v)})
		}
		n.kafka.Produce(t, n.topic, records...)
	}
	stop := func(p *proctest.Proc) {
		if code, _ := p.Term(patience); code != 0 {
			t.Errorf("ended with %d", code)
		}
	}
	const count = `SELECT count(*)::text FROM ferry.message_status WHERE status = '%s'`
	for i := range 20 {
		produce(event(i))
	}
	n.is(patience, "20", delivered)

	n.title("Did event X reach the platform?")
	n.run(0, []string{"delivered", "ev-7", "200"}, "forwarder", "show", "key:ev-7")
	n.run(1, []string{"ev-700"}, "forwarder", "show", "key:ev-700")

	n.title("Send it again")
	n.run(0, nil, "forwarder", "replay", "--key", "ev-7", "--status", "delivered", "--yes")
	n.is(patience, "2", `SELECT count(*)::text FROM ferry.attempts a JOIN ferry.messages m ON m.id = a.message_id WHERE m.message_key = 'ev-7'`)

	n.title("The platform is down")
	n.receiver.Down()
	produce(event(20), event(21), event(22))
	n.is(patience, "3", `SELECT count(*)::text FROM ferry.deliveries WHERE status = 'pending' AND requests > 0`)
	n.run(0, []string{"pending", "ev-21"}, "forwarder", "list", "--status", "pending")
	n.run(0, []string{"connect"}, "forwarder", "show", "key:ev-21")
	n.receiver.Up()
	n.is(patience, "23", delivered)

	n.title("The platform rejects what it took yesterday")
	n.receiver.Answer(func(r *receivertest.Request) receivertest.Answer {
		if strings.Contains(string(r.Body), "P3") {
			return receivertest.JSONStatus(422, `{"errcode":998,"errmsg":"unknown park P3"}`)
		}
		return receivertest.JSON(`{"result":0}`)
	})
	for i := 23; i < 40; i++ {
		produce(event(i))
	}
	n.is(patience, "4", fmt.Sprintf(count, "failed"))
	n.run(0, []string{"rejected", "ev-38"}, "forwarder", "list", "--status", "failed", "--since", "1h")
	n.run(0, []string{"unknown park P3"}, "forwarder", "show", "key:ev-38")
	n.run(0, []string{"curl"}, "forwarder", "try", "--message", "key:ev-38")
	n.receiver.Always(receivertest.JSON(`{"result":0}`))
	n.run(0, []string{"4"}, "forwarder", "replay", "--route", "vehicle-event", "--reason", "rejected", "--since", "1h", "--dry-run")
	n.run(0, []string{"4"}, "forwarder", "replay", "--route", "vehicle-event", "--reason", "rejected", "--since", "1h", "--yes")
	n.is(patience, "40", delivered)

	n.title("A record is no JSON")
	produce(`{"messageId":"ev-40","parkCode":`)
	n.is(patience, "1", fmt.Sprintf(count, "failed"))
	n.run(0, []string{"undecodable"}, "forwarder", "list", "--status", "failed", "--reason", "undecodable")
	id, err := n.ask(`SELECT message_id::text FROM ferry.message_status WHERE reason = 'undecodable'`)
	if err != nil {
		t.Fatal(err)
	}
	n.run(0, []string{"undecodable", `{"messageId":"ev-40"`}, "forwarder", "show", "id:"+id)

	n.title("Two different events have one key")
	produce(`{"messageId":"ev-5","parkCode":"P9"}`)
	n.is(patience, "1", `SELECT count(*)::text FROM ferry.message_status WHERE reason = 'conflict'`)
	key, err := n.ask(`SELECT message_key FROM ferry.message_status WHERE reason = 'conflict'`)
	if err != nil {
		t.Fatal(err)
	}
	n.run(0, []string{"conflict"}, "forwarder", "list", "--key-prefix", "ev-5")
	n.run(0, nil, "forwarder", "replay", "--key", key, "--yes")
	n.is(patience, "41", delivered)

	n.title("Somebody deleted a job")
	n.receiver.Always(receivertest.Status(429).With("Retry-After", "3600"))
	produce(event(41))
	n.is(patience, "1", `SELECT count(*)::text FROM ferry.deliveries WHERE status = 'pending' AND requests > 0`)
	stop(fw)
	if _, err := n.pool.Exec(t.Context(), `DELETE FROM ferry.river_job WHERE id = (SELECT job_id FROM ferry.deliveries WHERE status = 'pending')`); err != nil {
		t.Fatal(err)
	}
	n.run(1, []string{"job"}, "forwarder", "audit")
	n.receiver.Always(receivertest.JSON(`{"result":0}`))
	if _, err := n.pool.Exec(t.Context(), `UPDATE ferry.deliveries SET next_attempt_at = now() WHERE status = 'pending'`); err != nil {
		t.Fatal(err)
	}
	fw = n.forwarder() // reconciles when it starts
	n.is(rescuePatience, "42", delivered)

	n.title("Somebody deleted messages")
	if _, err := n.pool.Exec(t.Context(), `WITH gone AS (DELETE FROM ferry.messages WHERE message_key IN ('ev-10', 'ev-11') RETURNING id)
		DELETE FROM ferry.deliveries WHERE message_id IN (SELECT id FROM gone)`); err != nil {
		t.Fatal(err)
	}
	n.run(1, []string{"missing"}, "forwarder", "audit")
	n.run(0, []string{"2 stored"}, "ingester", "reread", "--topic", n.topic, "--partition", "0", "--from", "0", "--to", "40")
	n.is(patience, "42", delivered)
	n.run(0, nil, "forwarder", "audit")

	n.title("A new route needs the past of its topic")
	stop(in)
	stop(fw)
	second := strings.Replace(strings.TrimPrefix(fmt.Sprintf(nightRoutes, n.receiver.URL()), "version: 1\nroutes:\n"), "name: vehicle-event", "name: archive", 1)
	n.writeRoutes(fmt.Sprintf(nightRoutes, n.receiver.URL()) + second)
	n.ingester()
	n.forwarder()
	n.run(0, []string{"archive"}, "ingester", "reread", "--topic", n.topic, "--partition", "0", "--from", "0", "--to", "43", "--route", "archive")
	n.is(patience, "83", delivered)

	n.title("Prove that nothing is missing")
	n.run(0, nil, "forwarder", "audit")
	n.run(0, []string{`"ok":true`}, "forwarder", "audit", "--json")
}
