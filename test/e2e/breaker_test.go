package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// destinations is an installation whose routes each have a receiver of their own; messages are stored without Kafka.
type destinations struct {
	*env

	at    map[string]*receivertest.Receiver
	saved map[string]int // messages of each route
}

// newDestinations makes one receiver for each route. Waits are short, so that an outage of seconds shows what one of
// minutes would.
func newDestinations(t *testing.T, routes ...string) *destinations {
	t.Helper()
	d := &destinations{env: newEnv(t, kafkatest.Fake(t), 1), at: map[string]*receivertest.Receiver{}, saved: map[string]int{}}
	file := `version: 1
defaults:
  job_size: 10
  concurrency: 20
  retry: {initial: 200ms, max: 2s, max_attempts: 5}
  http: {timeout: 2s, connect_timeout: 1s}
  breaker: {cooldown: 500ms, cooldown_max: 2s, hold_max: 3s}
routes:
`
	for _, r := range routes {
		d.at[r] = receivertest.New(t, receivertest.Options{})
		file += fmt.Sprintf("  - {name: %s, topics: [%s], request: {url: %q}}\n", r, r, d.at[r].URL()+"/in")
	}
	d.writeRoutes(file)
	return d
}

// store stores n messages of a route, with keys m0, m1, ….
func (d *destinations) store(route string, n int) {
	d.t.Helper()
	s, err := store.Open(context.Background(), store.Config{URL: d.db, JobSizes: map[string]int{route: 10}})
	if err != nil {
		d.t.Fatal(err)
	}
	defer s.Close()
	tp := message.TopicPartition{Topic: route}
	b := &message.Batch{Group: d.group}
	for i := d.saved[route]; i < d.saved[route]+n; i++ {
		b.Incoming = append(b.Incoming, message.Incoming{
			Route: route, Key: fmt.Sprintf("m%d", i), Result: message.IngestStored,
			Record: &message.Record{Position: message.Position{TopicPartition: tp, Offset: int64(i)}, Value: []byte(`{}`)},
		})
	}
	if _, err := s.Save(context.Background(), b); err != nil {
		d.t.Fatal(err)
	}
	d.saved[route] += n
}

const count = `SELECT count(*)::text FROM ferry.message_status WHERE route = $1 AND `

// ends waits until all messages of a route are delivered, and checks that none of them failed.
func (d *destinations) ends(route string) {
	d.t.Helper()
	d.is(patience, "0", count+"status = 'pending'", route)
	d.is(patience, fmt.Sprint(d.saved[route]), count+"status = 'delivered'", route)
}

// states returns the states that a process's breaker of a route went through after healthy.
func states(p *proctest.Proc, route string) []string {
	var all []string
	for line := range strings.Lines(p.Log()) {
		var e struct{ Route, Was, Is, Evidence string }
		if json.Unmarshal([]byte(line), &e) == nil && e.Route == route && e.Evidence != "" {
			all = append(all, e.Is)
		}
	}
	return all
}

// share says whether a key belongs to that share of all keys.
func share(key string, of float64) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key + "?"))
	return float64(h.Sum32()%1000) < of*1000
}

// A destination refuses connections, four forwarders and one other route beside it: no attempt is burnt and next to nothing
// is sent, the forwarders stay ready and say what they make of it, the other route notices nothing, and afterwards all is
// delivered.
func TestOutage(t *testing.T) {
	t.Parallel()
	const replicas = 4
	d := newDestinations(t, "down", "up")
	d.at["down"].Down()
	var forwarders []*proctest.Proc
	for range replicas {
		forwarders = append(forwarders, d.forwarder())
	}
	d.store("down", 3000)
	for _, f := range forwarders {
		ready(t, f, 200, `route down: open since`)
		if got := metric(f, `ferry_breaker_state{route="down",state="open"}`); got != "1" {
			t.Errorf("ferry_breaker_state of open is %q", got)
		}
	}
	outage := 2 * time.Minute
	if !full {
		outage = 10 * time.Second
	}
	begun := time.Now()
	for time.Since(begun) < outage {
		d.store("up", 50)
		d.store("down", 5)
		d.is(patience, fmt.Sprint(d.saved["up"]), count+"status = 'delivered'", "up")
	}
	const slow = `SELECT (percentile_cont(0.95) WITHIN GROUP (ORDER BY settled_at - received_at))::text || ' ' ||
		(percentile_cont(0.95) WITHIN GROUP (ORDER BY settled_at - received_at) < interval '2 s')::text
		FROM ferry.message_status WHERE route = 'up'`
	if got, _ := d.ask(slow); !strings.HasSuffix(got, "true") {
		t.Errorf("the other route's p95 is %s", got)
	}
	var requests int
	got, err := d.ask(`SELECT count(*)::text FROM ferry.attempts a JOIN ferry.messages m ON m.id = a.message_id WHERE m.route = 'down'`)
	if _, scan := fmt.Sscan(got, &requests); err != nil || scan != nil {
		t.Fatalf("%q, %v", got, err)
	}
	// The first hundred and what was in flight, then one for each cooldown.
	most := replicas * (100 + 20 + 5 + int(time.Since(begun)/(2*time.Second)))
	t.Logf("%d requests of %d replicas in an outage of %s, %d messages", requests, replicas, time.Since(begun), d.saved["down"])
	if requests > most {
		t.Errorf("%d requests in the outage, want at most %d", requests, most)
	}
	d.at["down"].Up()
	d.ends("down")
	d.ends("up")
	d.is(patience, "0", count+"attempts <> 1", "down")
	for _, f := range forwarders {
		ready(t, f, 200, `"routes":{"ok":true,"why":""}`)
		if got := states(f, "down"); len(got) < 2 || got[0] != "open" && got[1] != "open" || got[len(got)-1] != "healthy" {
			t.Errorf("the breaker went through %v", got)
		}
		if got := states(f, "up"); len(got) > 0 {
			t.Errorf("the other route's breaker went through %v", got)
		}
	}
}

// A destination that answers everything with an error fails no message either, but for those that burnt their attempts
// before there was evidence: none, with as many attempts as there are by default.
func TestOutageOfErrors(t *testing.T) {
	t.Parallel()
	d := newDestinations(t, "errors", "hangs")
	d.at["errors"].Always(receivertest.Status(500))
	d.at["hangs"].Always(receivertest.Hang())
	f := d.forwarder()
	d.store("errors", 1500)
	d.store("hangs", 1500)
	ready(t, f, 200, "route errors: open since")
	ready(t, f, 200, "route hangs: open since")
	outlast(2 * time.Minute)
	sent := map[string]int{"errors": d.at["errors"].Count(), "hangs": d.at["hangs"].Count()}
	for route, n := range sent {
		d.at[route].Always(receivertest.Status(200))
		if n > 100+2*20+80 {
			t.Errorf("%s: %d requests in the outage", route, n)
		}
	}
	t.Logf("requests in the outage: %v", sent)
	d.ends("errors")
	d.ends("hangs")
}

// Bad records at a destination that is up: one alone, and shares of 30, 50 and 70 %. They neither close the route nor delay
// the good ones, and one alone fails after its attempts.
func TestBadRecords(t *testing.T) {
	t.Parallel()
	shares := map[string]float64{"one": 0, "bad30": .3, "bad50": .5, "bad70": .7}
	d := newDestinations(t, "one", "bad30", "bad50", "bad70")
	bad := func(route, key string) bool {
		return route == "one" && key == "m7" || share(key, shares[route])
	}
	for route := range shares {
		d.at[route].Answer(func(r *receivertest.Request) receivertest.Answer {
			if bad(route, r.Key) {
				return receivertest.Status(500)
			}
			return receivertest.Status(200).After(2 * time.Millisecond)
		})
	}
	good := func(route string) (n int) {
		for i := range d.saved[route] {
			if !bad(route, fmt.Sprintf("m%d", i)) {
				n++
			}
		}
		return n
	}
	f := d.forwarder()
	const length = 8 * time.Second // longer, and the bad ones, which go on coming back, are too many for a test machine
	begun := time.Now()
	flow := time.NewTicker(200 * time.Millisecond) // good ones come among the repeats of bad ones
	defer flow.Stop()
	for time.Since(begun) < length {
		for route := range shares {
			d.store(route, 10)
		}
		<-flow.C
	}
	for route := range shares {
		d.is(patience, fmt.Sprint(good(route)), count+"status = 'delivered'", route)
		got, _ := d.ask(`SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY settled_at - received_at) || ', at most ' ||
			max(settled_at - received_at) FROM ferry.message_status WHERE route = $1 AND status = 'delivered'`, route)
		t.Logf("%s: good ones delivered after %s; the breaker went through %v", route, got, states(f, route))
		d.is(patience, "", `SELECT coalesce(string_agg(message_key || ' after ' || settled_at - received_at || ': ' || (
				SELECT string_agg(concat_ws(' ', a.started_at, a.duration_ms, a.verdict, a.http_status, a.error), '; ')
				FROM ferry.attempts a WHERE a.message_id = s.message_id), E'\n'), '')
			FROM ferry.message_status s
			WHERE route = $1 AND status = 'delivered' AND (attempts <> 1 OR settled_at - received_at > interval '5 s')`, route)
		d.is(patience, "true", `SELECT (percentile_cont(0.5) WITHIN GROUP (ORDER BY settled_at - received_at) < interval '1 s')::text
			FROM ferry.message_status WHERE route = $1 AND status = 'delivered'`, route)
		if got := states(f, route); slices.Contains(got, "open") && !onlyBadLeft(d, route, f) {
			t.Errorf("%s: the breaker opened while good ones flowed: %v", route, got)
		}
	}
	d.is(patience, "failed exhausted 5", `SELECT status || ' ' || reason || ' ' || attempts FROM ferry.message_status
		WHERE route = 'one' AND message_key = 'm7'`)
	if n := d.at["one"].CountByKey()["m7"]; n != 5 {
		t.Errorf("the bad record was sent %d times", n)
	}
	if got := states(f, "one"); len(got) > 0 {
		t.Errorf("the breaker went through %v for one bad record", got)
	}
	// At 30 % bad ones burn their attempts and fail, until they alone are left; at more than half nobody can tell them from
	// a brown-out.
	d.is(patience, "true", `SELECT (count(*) > 10)::text FROM ferry.message_status WHERE route = $1 AND status = 'failed'`, "bad30")
	d.is(patience, "0", count+"status = 'failed' AND (attempts <> 5 OR reason <> 'exhausted')", "bad30")
}

// onlyBadLeft says whether the breaker opened only after the last good message of the route was delivered.
func onlyBadLeft(d *destinations, route string, f *proctest.Proc) bool {
	last, err := d.ask(`SELECT max(settled_at)::timestamptz::text FROM ferry.message_status WHERE route = $1 AND status = 'delivered'`, route)
	if err != nil {
		d.t.Fatal(err)
	}
	end, err := time.Parse("2006-01-02 15:04:05.999999-07", last)
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(f.Log()) {
		var e struct {
			Time      time.Time
			Route, Is string
		}
		if json.Unmarshal([]byte(line), &e) == nil && e.Route == route && e.Is == "open" && e.Time.Before(end) {
			return false
		}
	}
	return true
}

// bucket lets so many requests through a second and answers 429 to the others.
type bucket struct {
	mu     sync.Mutex
	rate   float64
	tokens float64
	last   time.Time
	over   receivertest.Answer
}

func (b *bucket) answer(*receivertest.Request) receivertest.Answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.last.IsZero() {
		b.last = now
	}
	// Half a second's worth is kept, so that a machine that stalls for as long changes nothing.
	b.tokens = min(b.rate/2, b.tokens+b.rate*now.Sub(b.last).Seconds())
	b.last = now
	if b.tokens < 1 {
		return b.over
	}
	b.tokens--
	return receivertest.Status(200).After(2 * time.Millisecond)
}

// A destination that takes 50 requests a second and answers 429 to the others gets its 50 a second, and nothing fails.
func TestAskedToWaitAllTheTime(t *testing.T) {
	t.Parallel()
	d := newDestinations(t, "plain", "told")
	for route, over := range map[string]receivertest.Answer{
		"plain": receivertest.Status(429), "told": receivertest.Status(429).With("Retry-After", "1"),
	} {
		d.at[route].Answer((&bucket{rate: 50, over: over}).answer)
		d.store(route, 600)
	}
	f := d.forwarder()
	for _, route := range []string{"plain", "told"} {
		d.ends(route)
		d.is(patience, "0", count+"attempts <> 1", route)
		// Between the first delivery and the time at which two thirds were done.
		got, err := d.ask(`WITH d AS (SELECT settled_at, row_number() OVER (ORDER BY settled_at) AS n FROM ferry.message_status WHERE route = $1)
			SELECT round(400 / extract(epoch FROM (SELECT settled_at FROM d WHERE n = 400) - (SELECT settled_at FROM d WHERE n = 1)))::text`, route)
		var rate float64
		if _, scan := fmt.Sscan(got, &rate); err != nil || scan != nil {
			t.Fatalf("%q, %v", got, err)
		}
		t.Logf("%s: %.0f a second, %d requests for 600 messages", route, rate, d.at[route].Count())
		if rate < 38 { // with room for a busy machine
			t.Errorf("%s: %.0f a second, the destination would take 50", route, rate)
		}
		if got := states(f, route); len(got) > 0 {
			t.Errorf("%s: the breaker went through %v", route, got)
		}
	}
}

// 70 % of all requests fail for a while: nothing fails, and all is delivered.
func TestBrownOut(t *testing.T) {
	t.Parallel()
	d := newDestinations(t, "brown")
	failing := func(r *receivertest.Request) receivertest.Answer {
		if share(fmt.Sprint(r.Key, r.Nth), .7) {
			return receivertest.Status([]int{500, 503}[r.N%2])
		}
		return receivertest.Status(200)
	}
	d.at["brown"].Answer(failing)
	f := d.forwarder()
	d.store("brown", 300)
	ready(t, f, 200, "route brown: degraded since")
	length := 2 * time.Minute
	if !full {
		length = 8 * time.Second
	}
	for begun := time.Now(); time.Since(begun) < length; {
		d.store("brown", 20)
		outlast(2 * time.Second)
	}
	d.at["brown"].Always(receivertest.Status(200))
	d.ends("brown")
	if got := states(f, "brown"); slices.Contains(got, "open") {
		t.Errorf("the breaker went through %v", got)
	}
}
