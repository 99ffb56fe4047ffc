package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

// Whatever the database says that is not about a record is waited out: nothing is failed for it, no offset moves, and
// readiness has its words. A trigger says it in the place of the server.
func TestTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	port := freePort(t)
	in := e.ingester("FERRY_ADMIN_ADDR=127.0.0.1:" + port)
	exec := func(sql string) {
		t.Helper()
		if _, err := e.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION 'refused for the test' USING ERRCODE = TG_ARGV[0]; END $$`)
	e.produce(0, 5, 1)
	e.is(patience, "5", `SELECT count(*)::text FROM ferry.messages`)
	for i, code := range []string{
		"25006", // read-only, as a standby is
		"53100", // disk full
		"53200", // out of memory
		"40001", // serialization failure
		"40P01", // deadlock
		"55P03", // lock timeout
		"57014", // statement timeout
		"57P01", // shutting down
		"42P01", // no such table, as in the middle of a migration
		"XX001", // data corrupted
	} {
		from := 5 * (i + 1)
		exec(`CREATE TRIGGER refuse BEFORE INSERT ON ferry.messages EXECUTE FUNCTION refuse('` + code + `')`)
		e.produce(from, 5, 1)
		proctest.Eventually(t, patience, func() error {
			status, body := get("http://127.0.0.1:" + port + "/readyz")
			if status != 503 || !strings.Contains(body, "refused for the test") || !strings.Contains(body, code) {
				return fmt.Errorf("%s: readyz %d: %s", code, status, body)
			}
			return nil
		})
		for tp, o := range e.kafka.Committed(t, e.group) {
			if o.Offset > int64(from) {
				t.Errorf("%s: %v was committed at %d with %d records stored", code, tp, o.Offset, from)
			}
		}
		exec(`DROP TRIGGER refuse ON ferry.messages`)
		e.is(patience, fmt.Sprint(from+5), `SELECT count(*)::text FROM ferry.messages`)
	}
	e.is(patience, "55 0 0", `SELECT sum(stored) || ' ' || sum(unstorable) || ' ' || sum(duplicates) FROM ferry.ledger`)
	proctest.Eventually(t, patience, func() error {
		if status, body := get("http://127.0.0.1:" + port + "/readyz"); status != 200 {
			return fmt.Errorf("readyz %d: %s", status, body)
		}
		return nil
	})
	if !in.Running() {
		t.Error("the ingester ended")
	}
}
