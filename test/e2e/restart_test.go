package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// crash ends the server without a goodbye to anybody, as "immediate" does: it recovers when it is started again.
func (d *database) crash() {
	d.t.Helper()
	if err := syscall.Kill(d.server.Pid, syscall.SIGQUIT); err != nil {
		d.t.Fatal(err)
	}
	<-d.server.Done()
	d.server.Stop()
}

// The server is restarted and crashes, is read-only for a while and changes the types of columns under kept plans, each time
// while answers come in. All of it is waited out by the same process: the flow goes on within 30 s, and in the end each
// message was sent once, and counts one attempt.
func TestDatabaseFaultsUnderAnswers(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	db := e.ownDatabase()
	e.receiver.Always(receivertest.Status(200).After(50 * time.Millisecond))
	fw := e.forwarder()
	exec := func(sql string) {
		t.Helper()
		if _, err := e.pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	sql := func(statements ...string) func() {
		return func() {
			for _, s := range statements {
				exec(s)
			}
		}
	}
	const plan = "cached plan must not change result type"
	stored := 0
	for _, fault := range []struct {
		name       string
		says       string // what the log has of it
		come, pass func()
	}{
		{"a fast restart", "57P01", db.stop, db.start},
		{"a crash", "connection refused", db.crash, db.start},
		{
			"read-only", "25006", sql(`ALTER SYSTEM SET default_transaction_read_only = on`, `SELECT pg_reload_conf()`),
			sql(`ALTER SYSTEM RESET default_transaction_read_only`, `SELECT pg_reload_conf()`),
		},
		{"all connections ended", "57P01", sql(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'ferry%'`), func() {}},
		{"a wider column", plan, sql(`ALTER TABLE ferry.deliveries ALTER COLUMN requests TYPE bigint`), func() {}},
		{"a narrower column", plan, sql(`ALTER TABLE ferry.deliveries ALTER COLUMN requests TYPE integer`), func() {}},
	} {
		e.save(stored, values(stored + 500)[stored:]...)
		stored += 500
		e.receiver.WaitUpTo(t, patience, "answers", func() bool { return e.receiver.Answered() >= stored-400 })
		from := len(fw.Log())
		fault.come()
		proctest.Eventually(t, patience, func() error {
			if !strings.Contains(fw.Log()[from:], fault.says) {
				return fmt.Errorf("%s: the log lacks %q", fault.name, fault.says)
			}
			return nil
		})
		fault.pass()
		begun, before := time.Now(), e.flowed()
		proctest.Eventually(t, 30*time.Second, func() error {
			if now := e.flowed(); now <= before {
				return fmt.Errorf("%s: %d were delivered before, %d are now", fault.name, before, now)
			}
			return nil
		})
		t.Logf("%s: deliveries go on after %s", fault.name, time.Since(begun).Round(time.Millisecond))
	}
	e.is(rescuePatience, fmt.Sprint(stored), delivered)
	if n := e.receiver.Count(); n != stored {
		t.Errorf("%d requests for %d messages", n, stored)
	}
	if got, err := e.ask(`SELECT count(*)::text FROM ferry.deliveries WHERE attempts <> 1 OR requests <> 1`); err != nil || got != "0" {
		t.Errorf("%s messages count other than one attempt, %v", got, err)
	}
	if !fw.Running() {
		t.Error("the forwarder ended")
	}
}

// flowed returns how many messages are delivered, -1 when the database does not say.
func (e *env) flowed() int {
	got, err := e.ask(delivered)
	n, bad := strconv.Atoi(got)
	if err != nil || bad != nil {
		return -1
	}
	return n
}
