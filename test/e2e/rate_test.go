package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

// limitedFile is a route with a rate limit, and few messages in memory.
const limitedFile = `version: 1
routes:
  - name: events
    topics: [%s]
    concurrency: 20
    retry: {initial: 200ms, max: 2s}
    http: {timeout: 2s, connect_timeout: 1s}
    request: {url: "%s/events"}
    rate_limit: %s
`

// arrived returns when requests arrived in a time, in order.
func (e *env) arrived(path string, from, to time.Time) (at []time.Time) {
	for _, r := range e.receiver.Requests() {
		if strings.HasPrefix(r.Path, path) && !r.At.Before(from) && r.At.Before(to) {
			at = append(at, r.At)
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	return at
}

// perSecond is how many requests a second arrived in a time, on average and in the second with the most.
func perSecond(at []time.Time, length time.Duration) (mean float64, most int) {
	for i := range at {
		j, _ := slices.BinarySearchFunc(at, at[i].Add(time.Second), time.Time.Compare)
		most = max(most, j-i)
	}
	return float64(len(at)) / length.Seconds(), most
}

// paced waits for some time and checks the rate at which requests arrive meanwhile.
func (e *env) paced(what string, length time.Duration, low, high float64, highest int) {
	e.t.Helper()
	from := time.Now()
	<-time.After(length) // the time is the case
	e.checkPaced(what, from, from.Add(length), low, high, highest)
}

func (e *env) checkPaced(what string, from, to time.Time, low, high float64, highest int) {
	e.t.Helper()
	mean, most := perSecond(e.arrived("/events", from, to), to.Sub(from))
	e.t.Logf("%s: %.1f a second over %s, at most %d in a second", what, mean, to.Sub(from).Round(time.Second), most)
	if mean < low || mean > high {
		e.t.Errorf("%s: %.1f a second, want %g to %g", what, mean, low, high)
	}
	if most > highest {
		e.t.Errorf("%s: %d in a second, want %d at most", what, most, highest)
	}
}

// noteLeases has the database note each statement that asks for a lease.
func (e *env) noteLeases() {
	e.t.Helper()
	if _, err := e.pool.Exec(e.t.Context(), `
		CREATE TABLE public.asked (at timestamptz NOT NULL DEFAULT clock_timestamp());
		CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.asked DEFAULT VALUES; RETURN NULL; END';
		CREATE TRIGGER note AFTER INSERT OR UPDATE ON ferry.rate_leases FOR EACH ROW EXECUTE FUNCTION public.note()`); err != nil {
		e.t.Fatal(err)
	}
}

// asks checks how many statements asked for leases since a time.
func (e *env) asks(what string, since time.Time, forwarders int) {
	e.t.Helper()
	got, err := e.ask(`SELECT count(*)::text FROM public.asked WHERE at > $1`, since)
	if err != nil {
		e.t.Fatal(err)
	}
	n, _ := strconv.Atoi(got)
	each := float64(n) / time.Since(since).Seconds() / float64(forwarders)
	e.t.Logf("%s: %.1f statements a second for each forwarder", what, each)
	if each > 10.2 {
		e.t.Errorf("%s: %.1f statements a second for each forwarder, want 10 at most", what, each)
	}
}

// once checks that what was delivered took one attempt and one request, however long it waited for its turn.
func (e *env) once() {
	e.t.Helper()
	got, err := e.ask(`SELECT count(*)::text FROM ferry.deliveries WHERE (attempts, requests) <> (1, 1) AND status = 'delivered' OR status = 'failed'
		OR status = 'pending' AND attempts + requests > 0`)
	if err != nil || got != "0" {
		e.t.Errorf("%s messages took more than one request, or failed: %v", got, err)
	}
}

// fewSlots checks that messages that wait for their turn hold no slot.
func fewSlots(t *testing.T, forwarders ...*proctest.Proc) {
	t.Helper()
	for _, p := range forwarders {
		used, err := strconv.Atoi(metric(p, `ferry_worker_slots{route="events",state="used"}`))
		if err != nil || used > 8 {
			t.Errorf("%d slots are used: %v", used, err)
		}
	}
}

// Three forwarders share 50 a second; one of them is killed, one is stopped, and the last one has it all.
func TestGlobalRateLimit(t *testing.T) {
	t.Parallel()
	shared, alone := 10*time.Second, 5*time.Second
	if full {
		shared, alone = 20*time.Second, 20*time.Second
	}
	e := newEnv(t, kafkatest.Fake(t), 1)
	e.writeRoutes(fmt.Sprintf(limitedFile, e.topic, e.receiver.URL(), "{per_second: 50, burst: 10, scope: global}"))
	e.noteLeases()
	// What the killed one has in memory stays there until its jobs are rescued: 20 jobs of 20 messages.
	e.save(0, values(50*int((2*shared+alone).Seconds())+600)...)
	begin := time.Now()
	f := []*proctest.Proc{e.forwarder(), e.forwarder(), e.forwarder()}
	for _, p := range f {
		p.WaitLog(`"working"`, patience)
	}
	e.receiver.WaitFor(t, "the burst", func() bool { return e.receiver.Count() > 60 })

	from := time.Now()
	e.paced("three forwarders", shared/2, 47.5, 52.5, 60)
	fewSlots(t, f...)
	f[0].Kill()
	e.paced("after one was killed", shared/2, 47, 52.5, 60)
	e.checkPaced("in all", from, time.Now(), 48, 52, 60)
	fewSlots(t, f[1:]...)
	e.asks("shared", begin, 3)

	if code, _ := f[1].Term(patience); code != 0 {
		t.Errorf("exit %d", code)
	}
	from = time.Now()
	e.paced("one alone", alone, 48, 52, 60)
	e.asks("alone", from, 1)
	fewSlots(t, f[2])
	if d := e.duplicates(); d > 0 {
		t.Errorf("%d messages were sent twice", d)
	}
	f[2].Term(patience)
	e.once()
	if mean, _ := perSecond(e.arrived("/events", begin, time.Now()), time.Since(begin)); mean > 50.5 {
		t.Errorf("%.1f a second since the start", mean)
	}
}

// A limit of each forwarder: two of them send twice as much.
func TestReplicaRateLimit(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	e.writeRoutes(fmt.Sprintf(limitedFile, e.topic, e.receiver.URL(), "{per_second: 20, burst: 5}"))
	e.save(0, values(600)...)
	f := []*proctest.Proc{e.forwarder(), e.forwarder()}
	for _, p := range f {
		p.WaitLog(`"working"`, patience)
	}
	e.receiver.WaitFor(t, "the bursts", func() bool { return e.receiver.Count() > 30 })
	e.paced("two forwarders", 5*time.Second, 38, 42, 50)
	fewSlots(t, f...)
	f[0].Term(patience)
	e.paced("one forwarder", 3*time.Second, 18.5, 21.5, 27)
	f[1].Term(patience)
	e.once()
}

// A route that sends one message in two seconds has many that wait: the other route does not notice.
func TestSlowRouteBesideAnother(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"replica", "global"} {
		t.Run(scope, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, kafkatest.Fake(t), 1)
			text := fmt.Sprintf(limitedFile, e.topic, e.receiver.URL(), "{per_second: 0.5, burst: 1, scope: "+scope+"}")
			text = strings.ReplaceAll(strings.ReplaceAll(text, "/events", "/slow"), "name: events", "name: slow")
			e.writeRoutes(text + strings.TrimPrefix(fmt.Sprintf(routeFile, e.topic, e.receiver.URL()), "version: 1\nroutes:\n"))
			e.saveTo("slow", 0, values(400)...)
			begin := time.Now()
			p := e.forwarder()
			e.receiver.WaitFor(t, "a request of the slow route", func() bool { return len(e.arrived("/slow", begin, time.Now())) > 0 })
			e.save(0, values(2000)...)
			from := time.Now()
			e.is(patience, "2000", `SELECT count(*)::text FROM ferry.deliveries WHERE route = 'events' AND status = 'delivered'`)
			took := time.Since(from)
			t.Logf("2000 messages in %s", took)
			if took > 20*time.Second {
				t.Errorf("2000 messages took %s", took)
			}
			if used := metric(p, `ferry_worker_slots{route="slow",state="used"}`); used != "0" && used != "1" {
				t.Errorf("the slow route uses %s slots", used)
			}
			e.receiver.WaitUpTo(t, patience, "four requests of the slow route", func() bool { return len(e.arrived("/slow", begin, time.Now())) >= 4 })
			at := e.arrived("/slow", begin, time.Now())
			for i := 1; i < len(at); i++ {
				if gap := at[i].Sub(at[i-1]); gap < 1700*time.Millisecond || gap > 6*time.Second { // jobs that waited their time are given back and come again
					t.Errorf("request %d of the slow route came %s after the one before", i+1, gap)
				}
			}
			p.Term(patience)
			e.once()
		})
	}
}
