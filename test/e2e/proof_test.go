package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// command runs a command of the forwarder's binary.
func (e *env) command(args ...string) (stdout, stderr string, code int) {
	e.t.Helper()
	return proctest.Run(e.t, binaries.Path(e.t, "forwarder"), append(e.common(), "FERRY_KAFKA_BROKERS="+e.brokers), args...)
}

// audited is what audit --json says, as far as the tests read it.
type audited struct {
	OK     bool `json:"ok"`
	Routes []struct {
		Route                                      string
		Stored, Delivered, Pending, Failed, Purged int64
	} `json:"routes"`
	Findings []string `json:"findings"`
}

func (e *env) audit() audited {
	e.t.Helper()
	stdout, stderr, code := e.command("audit", "--json")
	var a audited
	if err := json.Unmarshal([]byte(stdout), &a); err != nil || code > 1 {
		e.t.Fatalf("audit ended with %d, %v\n%s%s", code, err, stdout, stderr)
	}
	if a.OK != (code == 0) || a.OK != (len(a.Findings) == 0) {
		e.t.Errorf("audit ended with %d and says %s", code, stdout)
	}
	return a
}

// proof is an installation at work, to which things happen.
type proof struct {
	*env
	random *rand.Rand
	in, fw *proctest.Proc
	made   int // ids of records
	routes []string
}

const proofRoute = `
  - name: %s
    topics: [%s]
    message_key: .id
    filter: .n %% 7 != 0
    job_size: 5
    concurrency: 20
    retry: {initial: 50ms, max: 200ms, max_attempts: 3}
    breaker: {enabled: false}
    http: {timeout: 2s, connect_timeout: 1s}
    retention: {delivered: 1s, failed: 3s}
    request:
      method: POST
      url: %s/%[1]s
`

func (p *proof) restart(in, fw func()) {
	p.t.Helper()
	text := "version: 1\nroutes:"
	for _, r := range p.routes {
		text += fmt.Sprintf(proofRoute, r, p.topic, p.receiver.URL())
	}
	p.writeRoutes(text)
	if in != nil {
		in()
		p.in = p.ingester(restarted(p.kafka), "FERRY_LOG_LEVEL=info")
	}
	if fw != nil {
		fw()
		p.fw = p.forwarder("FERRY_LOG_LEVEL=info")
	}
}

func (p *proof) term(proc *proctest.Proc) func() {
	return func() {
		if proc == nil {
			return
		}
		if code, _ := proc.Term(patience); code != 0 {
			p.t.Errorf("ended with %d", code)
		}
	}
}

// flow produces new records, and some that come again: the same, another payload under a known key, none.
func (p *proof) flow() {
	var records []kafkatest.Record
	for range 20 + p.random.IntN(100) {
		id := p.made
		if again := p.random.IntN(10); again < 2 && p.made > 0 {
			id = p.random.IntN(p.made)
		} else {
			p.made++
		}
		value := fmt.Sprintf(`{"id":"m%d","n":%d}`, id, id)
		switch p.random.IntN(20) {
		case 0:
			value = fmt.Sprintf(`{"id":"m%d","n":%d,"other":%d}`, id, id, p.random.Int())
		case 1:
			value = "no JSON"
		}
		r := kafkatest.Record{Partition: int32(p.random.IntN(3)), Value: []byte(value)}
		if p.random.IntN(20) == 0 {
			r.Value = nil
		}
		records = append(records, r)
	}
	p.kafka.Produce(p.t, p.topic, records...)
}

// settled waits until nothing is pending.
func (p *proof) settled() {
	p.atEnds()
	p.is(rescuePatience, "0", `SELECT count(*)::text FROM ferry.deliveries WHERE status = 'pending'`)
}

// moves is what may happen, in any order.
func (p *proof) moves() map[string]func() {
	replay := func(args ...string) func() {
		return func() {
			if out, stderr, code := p.command(append([]string{"replay", "--yes", "--json"}, args...)...); code != 0 {
				p.t.Errorf("replay %v ended with %d\n%s%s", args, code, out, stderr)
			}
		}
	}
	return map[string]func(){
		"records":           p.flow,
		"more records":      p.flow,
		"ingester killed":   func() { p.restart(p.in.Kill, nil) },
		"forwarder killed":  func() { p.restart(nil, p.fw.Kill) },
		"forwarder stopped": func() { p.restart(nil, p.term(p.fw)) }, // the new one purges when it starts
		"failed replayed":   replay("--route", "a"),
		"all replayed":      replay("--since", "10m", "--status", "delivered", "--new-key"),
		"topic made again": func() {
			p.kafka.DeleteTopic(p.t, p.topic)
			p.kafka.CreateTopic(p.t, p.topic, 3, nil)
			p.flow()
		},
		"route added": func() {
			p.routes = append(p.routes, fmt.Sprintf("r%d", p.made))
			p.restart(p.term(p.in), p.term(p.fw))
			p.is(patience, "true", `SELECT ($1 = ANY(routes))::text FROM ferry.forwarders ORDER BY seen_at DESC LIMIT 1`, p.routes[len(p.routes)-1])
		},
		"route removed": func() {
			if len(p.routes) == 1 {
				return
			}
			p.settled() // what is pending for a route that is not in the file is a finding
			p.term(p.in)()
			p.settled()
			p.routes = p.routes[:1]
			p.restart(func() {}, p.term(p.fw))
		},
	}
}

// Whatever happens, in whatever order, the audit balances after it, and while it goes on.
func TestAuditBalances(t *testing.T) {
	t.Parallel()
	runs, steps := 2, 8
	if full {
		runs, steps = 10, 40
	}
	for range runs {
		seed := uint64(time.Now().UnixNano())
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, kafkatest.Fake(t), 3)
			p := &proof{env: e, random: rand.New(rand.NewPCG(seed, 0)), routes: []string{"a"}}
			e.receiver.Answer(func(r *receivertest.Request) receivertest.Answer {
				switch number(r.Key) % 10 {
				case 0:
					return receivertest.Status(422)
				case 1:
					return receivertest.Status(500)
				}
				return receivertest.Status(200)
			})
			p.restart(p.term(nil), p.term(nil))
			p.is(patience, "1", `SELECT count(*)::text FROM ferry.forwarders`) // else nobody works the route, which is a finding
			moves := p.moves()
			names := make([]string, 0, len(moves))
			for name := range moves {
				names = append(names, name)
			}
			slices.Sort(names)
			var done []string
			for range steps {
				name := names[p.random.IntN(len(names))]
				done = append(done, name)
				p.flow()
				moves[name]()
				if a := e.audit(); !a.OK {
					t.Fatalf("after %s:\n%s", strings.Join(done, ", "), strings.Join(a.Findings, "\n"))
				}
			}
			p.flow()
			p.settled()
			a := e.audit()
			if !a.OK {
				t.Fatalf("after %s, at rest:\n%s", strings.Join(done, ", "), strings.Join(a.Findings, "\n"))
			}
			t.Logf("%s: %+v", strings.Join(done, ", "), a.Routes)
		})
	}
}

// Each kind of damage is found, and named.
func TestAuditFindsDamage(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	e.receiver.Answer(func(r *receivertest.Request) receivertest.Answer {
		switch n := number(r.Key); {
		case n < 10:
			return receivertest.Status(422)
		case n < 20:
			return receivertest.Status(429).With("Retry-After", "600")
		}
		return receivertest.Status(200)
	})
	in, fw := e.ingester(), e.forwarder()
	e.produce(0, 100, 1)
	e.stored(100)
	e.atEnds()
	e.is(patience, "90", `SELECT count(*)::text FROM ferry.deliveries WHERE status <> 'pending'`)
	e.is(patience, "10", `SELECT count(*)::text FROM ferry.deliveries WHERE next_attempt_at IS NOT NULL`)
	for _, p := range []*proctest.Proc{in, fw} { // nobody repairs it
		if code, _ := p.Term(patience); code != 0 {
			t.Errorf("ended with %d", code)
		}
	}
	if a := e.audit(); !a.OK {
		t.Fatalf("before any damage: %s", strings.Join(a.Findings, "\n"))
	}
	id := func(key string) string {
		v, err := e.ask(`SELECT id::text FROM ferry.messages WHERE message_key = $1`, key)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct{ name, sql, found string }{
		{"message deleted", `DELETE FROM ferry.messages WHERE message_key = 'm50'`, id("m50")},
		{"delivery deleted", `DELETE FROM ferry.deliveries WHERE message_id = ` + id("m51"), id("m51")},
		{"both deleted", `WITH d AS (DELETE FROM ferry.deliveries WHERE message_id = ` + id("m52") + `) DELETE FROM ferry.messages WHERE message_key = 'm52'`, "missing"},
		{"job deleted", `DELETE FROM ferry.river_job WHERE id = (SELECT job_id FROM ferry.deliveries WHERE message_id = ` + id("m15") + `)`, id("m15")},
		{"job cancelled", `UPDATE ferry.river_job SET state = 'cancelled', finalized_at = now() WHERE id = (SELECT job_id FROM ferry.deliveries WHERE message_id = ` + id("m15") + `)`, id("m15")},
		{"position moved forward", `UPDATE ferry.positions SET next_offset = next_offset + 5`, e.topic},
		{"position moved back", `UPDATE ferry.positions SET next_offset = next_offset - 5`, e.topic},
		{"pending made delivered", `UPDATE ferry.deliveries SET status = 'delivered', settled_at = now() WHERE message_id = ` + id("m16"), id("m16")},
		{"failed made delivered", `UPDATE ferry.deliveries SET status = 'delivered', reason = NULL WHERE message_id = ` + id("m1"), id("m1")},
		{"failed made pending", `UPDATE ferry.deliveries SET status = 'pending', reason = NULL, settled_at = NULL WHERE message_id = ` + id("m2"), id("m2")},
		{"delivered made failed", `UPDATE ferry.deliveries SET status = 'failed', reason = 'rejected' WHERE message_id = ` + id("m60"), id("m60")},
		{"delivered made pending", `UPDATE ferry.deliveries SET status = 'pending', settled_at = NULL WHERE message_id = ` + id("m61"), id("m61")},
		{"counter raised", `UPDATE ferry.ledger SET stored = stored + 1, consumed = consumed + 1`, "events"},
	} {
		restore := e.snapshot()
		if _, err := e.pool.Exec(t.Context(), c.sql); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		a := e.audit()
		if a.OK || !slices.ContainsFunc(a.Findings, func(f string) bool { return strings.Contains(f, c.found) }) {
			t.Errorf("%s: want a finding with %q, got %q", c.name, c.found, a.Findings)
		}
		t.Logf("%s: %s", c.name, strings.Join(a.Findings, " | "))
		restore()
		if a := e.audit(); !a.OK {
			t.Fatalf("%s, put right again: %s", c.name, strings.Join(a.Findings, "\n"))
		}
	}
}

// damageable are the tables that TestAuditFindsDamage changes.
var damageable = []string{"messages", "deliveries", "failures", "river_job", "positions", "ledger"} //nolint:gochecknoglobals // a list

// snapshot keeps the tables aside, and returns how to put them back.
func (e *env) snapshot() (restore func()) {
	e.t.Helper()
	do := func(sql string) {
		if _, err := e.pool.Exec(e.t.Context(), sql); err != nil {
			e.t.Fatal(err)
		}
	}
	for _, table := range damageable {
		do("CREATE TABLE kept_" + table + " AS SELECT * FROM ferry." + table)
	}
	return func() {
		for _, table := range damageable {
			do("DELETE FROM ferry." + table)
			do("INSERT INTO ferry." + table + " OVERRIDING SYSTEM VALUE SELECT * FROM kept_" + table)
			do("DROP TABLE kept_" + table)
		}
	}
}
