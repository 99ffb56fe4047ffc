package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// The database hangs while answers come in, for longer than it takes until jobs count as lost, and a second forwarder, whose
// way to the database is free, takes them over. What the first one got before is stored when it can be, what it had in
// flight may be sent twice, and no more.
func TestDatabaseHangsWhileAnswersComeIn(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	e.writeRoutes(fmt.Sprintf(routeFile, e.topic, e.receiver.URL())) // a job may run for 9 s, and counts as lost after 24
	e.receiver.Always(receivertest.Status(200).After(20 * time.Millisecond))
	e.save(0, values(1000)...)
	gate, through := e.gate()
	e.forwarder("FERRY_DATABASE_URL=" + through)
	e.receiver.WaitUpTo(t, patience, "200 answers", func() bool { return e.receiver.Answered() >= 200 })
	reopen := gate.shut()
	before := e.receiver.Count()
	<-time.After(25 * time.Second) // the time is the case
	e.forwarder()                  // the other one
	e.is(rescuePatience, "0", `SELECT count(*)::text FROM ferry.river_job WHERE kind = 'forward' AND args->>'own' IS NULL AND state <> 'completed'`)
	outlast(60 * time.Second)
	reopen()
	e.is(rescuePatience, "1000", delivered)
	e.is(patience, "0", `SELECT count(*)::text FROM ferry.river_job WHERE kind = 'forward' AND state NOT IN ('completed', 'cancelled', 'discarded')`)
	if n := e.duplicates(); n > 50 {
		t.Errorf("%d messages were sent twice, with 50 requests in flight at most", n)
	}
	t.Logf("%d requests before the hang, %d sent twice", before, e.duplicates())
	if got, _ := e.ask(`SELECT count(*)::text FROM ferry.deliveries WHERE attempts <> 1`); got != "0" {
		t.Errorf("%s messages count other than one attempt", got)
	}
}

// The database hangs under one forwarder alone: when it is back, all outcomes are stored, and nothing is sent twice.
func TestDatabaseHangsUnderOneForwarder(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	e.receiver.Always(receivertest.Status(200).After(20 * time.Millisecond))
	e.save(0, values(600)...)
	gate, through := e.gate()
	fw := e.forwarder("FERRY_DATABASE_URL=" + through)
	e.receiver.WaitUpTo(t, patience, "200 answers", func() bool { return e.receiver.Answered() >= 200 })
	reopen := gate.shut()
	ready(t, fw, 503, "database")
	outlast(20 * time.Second)
	reopen()
	e.is(rescuePatience, "600", delivered)
	if n := e.duplicates(); n > 0 {
		t.Errorf("%d messages were sent twice", n)
	}
}

// Whatever the database says that is not about a value is waited out: the outcome is stored in the end, under a process that
// lives, with one request for each message.
func TestOutcomesAreStoredInTheEnd(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	exec := func(statements ...string) {
		t.Helper()
		for _, s := range statements {
			if _, err := e.pool.Exec(context.Background(), s); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
		}
	}
	exec(`CREATE SEQUENCE public.refused`, `CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF nextval('public.refused') <= 4 THEN RAISE EXCEPTION 'refused on purpose' USING ERRCODE = TG_ARGV[0]; END IF;
			RETURN NULL;
		END $$`)
	fw := e.forwarder()
	stored := 0
	for _, state := range []string{
		"25006", // read-only
		"53100", // disk full
		"53300", // too many connections
		"57P01", // shutdown by the administrator
		"57P03", // starting up, or shutting down
		"40001", // serialization failure
		"40P01", // deadlock
		"55P03", // lock not available in time
		"57014", // statement timeout
	} {
		exec(`ALTER SEQUENCE public.refused RESTART`,
			fmt.Sprintf(`CREATE TRIGGER refuse BEFORE UPDATE ON ferry.deliveries FOR EACH STATEMENT EXECUTE FUNCTION public.refuse('%s')`, state))
		e.save(stored, values(stored + 40)[stored:]...)
		stored += 40
		e.is(patience, fmt.Sprint(stored), delivered)
		e.is(patience, "true", `SELECT (last_value > 4)::text FROM public.refused`)
		exec(`DROP TRIGGER refuse ON ferry.deliveries`)
	}
	// A change of a type makes every plan that was kept invalid: "cached plan must not change result type".
	for _, typ := range []string{"varchar(200)", "text"} {
		exec(`ALTER TABLE ferry.river_job ALTER COLUMN queue TYPE ` + typ)
		e.save(stored, values(stored + 40)[stored:]...)
		stored += 40
		e.is(patience, fmt.Sprint(stored), delivered)
	}
	if n := e.receiver.Count(); n != stored {
		t.Errorf("%d requests for %d messages", n, stored)
	}
	if !fw.Running() {
		t.Error("the forwarder ended")
	}
	if got, _ := e.ask(`SELECT count(*)::text FROM ferry.deliveries WHERE attempts <> 1 OR requests <> 1`); got != "0" {
		t.Errorf("%s messages count other than one attempt", got)
	}
}

// A forwarder is killed in the middle of messages' only attempt. Nobody knows what became of it, so they are sent again,
// and end by what comes back then.
func TestKilledAtTheLastAttempt(t *testing.T) {
	t.Parallel()
	d := newDestinations(t, "once")
	d.rewrite("max_attempts: 5", "max_attempts: 1")
	d.at["once"].Always(receivertest.Hang())
	first := d.forwarder()
	d.store("once", 6)
	d.at["once"].WaitCount(t, 6)
	first.Kill()
	d.at["once"].Answer(func(r *receivertest.Request) receivertest.Answer {
		if r.Key == "m1" {
			return receivertest.Status(500)
		}
		return receivertest.Status(200)
	})
	d.forwarder()
	d.is(rescuePatience, "5", count+"status = 'delivered' AND attempts = 1", "once")
	d.is(rescuePatience, "1", count+"status = 'failed' AND reason = 'exhausted' AND attempts = 1 AND message_key = 'm1'", "once")
	for key, n := range d.at["once"].CountByKey() {
		if n != 2 {
			t.Errorf("%s was sent %d times", key, n)
		}
	}
}
