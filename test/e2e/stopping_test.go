package e2e

import (
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// A forwarder is stopped while its destination is down: what waits is given back at once, so that the next one has it
// without a rescue.
func TestStoppedWhileOpen(t *testing.T) {
	t.Parallel()
	d := newDestinations(t, "down")
	d.rewrite("hold_max: 3s", "hold_max: 5s")
	d.at["down"].Down()
	fw := d.forwarder()
	d.store("down", 500)
	ready(t, fw, 200, "route down: open since")
	d.is(patience, "true", `SELECT (count(*) > 0)::text FROM ferry.river_job WHERE kind = 'forward' AND state = 'running'`)
	if code, took := fw.Term(patience); code != 0 || took > 3*time.Second {
		t.Errorf("it ended with %d after %s", code, took)
	}
	d.is(patience, "0", `SELECT count(*)::text FROM ferry.river_job WHERE kind = 'forward' AND state = 'running'`)
	d.at["down"].Up()
	d.forwarder()
	d.ends("down")
	d.is(patience, "0", count+"attempts <> 1", "down")
	if n := d.at["down"].Count(); n != 500 {
		t.Errorf("%d requests for 500 messages", n)
	}
}

// A forwarder is stopped while the database hangs, with outcomes that it can't store: it ends within its time all the same.
func TestStoppedWhileTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	e.receiver.Always(receivertest.Status(200).After(20 * time.Millisecond))
	e.save(0, values(400)...)
	gate, through := e.gate()
	fw := e.forwarder("FERRY_DATABASE_URL="+through, "FERRY_SHUTDOWN_TIMEOUT=2s")
	e.receiver.WaitUpTo(t, patience, "answers", func() bool { return e.receiver.Answered() >= 100 })
	gate.shut()
	e.receiver.WaitUpTo(t, patience, "answers to all", func() bool { now, _ := e.receiver.InFlight(); return now == 0 })
	if code, took := fw.Term(patience); code != 0 || took > 13*time.Second { // at most 10 s more than the timeout, as documented
		t.Errorf("it ended with %d after %s", code, took)
	}
	if text := "an outcome is lost, the message will be sent again"; len(logLines(fw, "error", text)) == 0 {
		t.Errorf("the log lacks %q", text)
	}
}
