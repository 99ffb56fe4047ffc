package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// operator acts on jobs as River UI does.
type operator struct {
	e      *env
	client *river.Client[pgx.Tx]
}

func newOperator(e *env) *operator {
	e.t.Helper()
	c, err := river.NewClient(riverpgxv5.New(e.pool), &river.Config{Schema: "ferry"})
	if err != nil {
		e.t.Fatal(err)
	}
	return &operator{e, c}
}

// act does to the job of each message what the button does.
func (o *operator) act(do func(context.Context, int64) (*rivertype.JobRow, error), from, to int) {
	o.e.t.Helper()
	done := map[int64]bool{}
	for i := from; i < to; i++ {
		var id int64
		if err := o.e.pool.QueryRow(context.Background(), `SELECT d.job_id FROM ferry.deliveries d JOIN ferry.messages m ON m.id = d.message_id
			WHERE m.message_key = $1`, fmt.Sprintf("m%d", i)).Scan(&id); err != nil {
			o.e.t.Fatal(err)
		}
		if done[id] {
			continue
		}
		done[id] = true
		if _, err := do(context.Background(), id); err != nil && !errors.Is(err, rivertype.ErrNotFound) {
			o.e.t.Fatalf("job %d of m%d: %v", id, i, err)
		}
	}
}

func (o *operator) sql(query string, from, to int) {
	o.e.t.Helper()
	var keys []string
	for i := from; i < to; i++ {
		keys = append(keys, fmt.Sprintf("m%d", i))
	}
	if _, err := o.e.pool.Exec(context.Background(), query, keys); err != nil {
		o.e.t.Fatal(err)
	}
}

const ownedBy = ` WHERE id IN (SELECT d.job_id FROM ferry.deliveries d JOIN ferry.messages m ON m.id = d.message_id WHERE m.message_key = ANY($1))`

// 300 messages wait, in groups and in jobs of their own; those jobs are deleted, cancelled, discarded and completed by
// SQL and by River's own API, and failed messages are repaired by SQL. Each ends as the table in docs/operations.md says.
func TestReconcile(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	// No breaker, and long waits: a message that was refused once waits in a job of its own.
	file := strings.Replace(fmt.Sprintf(routeFile, e.topic, e.receiver.URL()), "initial: 200ms, max: 2s, max_attempts: 10",
		"initial: 30m, max: 30m, max_attempts: 3", 1)
	e.writeRoutes(strings.Replace(file, "    job_size: 20\n", "    job_size: 20\n    breaker: {enabled: false}\n", 1))
	e.receiver.Answer(func(r *receivertest.Request) receivertest.Answer {
		if n := number(r.Key); n >= 280 {
			return receivertest.Status(400)
		}
		return receivertest.Status(500)
	})
	e.save(0, values(300)[:20]...)
	for i := 20; i < 160; i += 20 { // own jobs: 0…159
		e.saveMore(i, 20)
	}
	e.saveMore(280, 20) // failed ones: 280…299
	fw := e.forwarder()
	e.is(patience, "160", `SELECT count(*)::text FROM ferry.river_job WHERE args->>'own' = 'true' AND state = 'scheduled'`)
	e.is(patience, "20", `SELECT count(*)::text FROM ferry.river_job WHERE args->>'own' = 'true' AND state = 'cancelled'`)
	if code, _ := fw.Term(patience); code != 0 {
		t.Fatalf("the forwarder ended with %d", code)
	}
	for i := 160; i < 280; i += 20 { // groups: 160…279
		e.saveMore(i, 20)
	}
	op := newOperator(e)
	op.act(op.client.JobDelete, 0, 20)
	op.act(op.client.JobCancel, 20, 40)
	op.act(op.client.JobRetry, 40, 60)
	op.sql(`DELETE FROM ferry.river_job`+ownedBy, 60, 80)
	op.sql(`UPDATE ferry.river_job SET state = 'cancelled', finalized_at = now()`+ownedBy, 80, 100)
	op.sql(`UPDATE ferry.river_job SET state = 'discarded', finalized_at = now()`+ownedBy, 100, 120)
	op.sql(`UPDATE ferry.river_job SET state = 'completed', finalized_at = now()`+ownedBy, 120, 140)
	// 140…159 wait on untouched.
	op.act(op.client.JobDelete, 160, 180)
	op.act(op.client.JobCancel, 180, 200)
	op.act(op.client.JobRetry, 200, 220)
	op.sql(`DELETE FROM ferry.river_job`+ownedBy, 220, 240)
	op.sql(`UPDATE ferry.river_job SET state = 'discarded', finalized_at = now()`+ownedBy, 240, 260)
	op.sql(`UPDATE ferry.river_job SET state = 'cancelled', finalized_at = now()`+ownedBy, 260, 280)
	op.sql(`UPDATE ferry.deliveries SET status = 'pending', reason = NULL, settled_at = NULL
		WHERE message_id IN (SELECT id FROM ferry.messages WHERE message_key = ANY($1))`, 280, 290)
	// What was deleted, discarded or completed while it waited is due when it was before.
	op.sql(`UPDATE ferry.deliveries SET next_attempt_at = now() WHERE message_id IN (SELECT id FROM ferry.messages WHERE message_key = ANY($1))`, 0, 140)
	e.receiver.Always(receivertest.Status(200))
	e.receiver.Forget()
	fw = e.forwarder()
	fw.WaitLog("jobs of pending messages were cancelled", patience)
	want := map[string]int{"delivered -": 20 * 9, "pending -": 20, "failed cancelled": 80, "failed rejected": 10}
	want["delivered -"] = 300 - 20 - 80 - 10
	for state, n := range want {
		e.is(patience, fmt.Sprint(n), `SELECT count(*)::text FROM ferry.message_status WHERE status || ' ' || coalesce(reason, '-') = $1`, state)
	}
	for _, r := range [][2]int{{20, 40}, {80, 100}, {180, 200}, {260, 280}} {
		for i := r[0]; i < r[1]; i++ {
			e.is(patience, "failed cancelled cancelled", `SELECT d.status || ' ' || d.reason || ' ' || j.state FROM ferry.deliveries d
				JOIN ferry.messages m ON m.id = d.message_id JOIN ferry.river_job j ON j.id = d.job_id WHERE m.message_key = $1`, fmt.Sprintf("m%d", i))
		}
	}
	if n, d := e.receiver.Count(), e.duplicates(); n != 190 || d != 0 {
		t.Errorf("%d requests, %d of them too many; want 190, each once", n, d)
	}
	// Taken up: all that were touched but the retried ones; 10 repaired.
	e.metric(fw, "ferry_reconciled_total", 20*11+10)
	e.sums()

	// Retry of the jobs of failed messages replays them.
	op.act(op.client.JobRetry, 20, 40)
	op.act(op.client.JobRetry, 180, 200)
	op.act(op.client.JobRetry, 290, 300)
	e.is(patience, "240", delivered)
	e.sums()
	if d := e.duplicates(); d != 0 {
		t.Errorf("%d requests too many", d)
	}
}

// saveMore stores n messages m<from>… as a batch of its own, so as a group.
func (e *env) saveMore(from, n int) {
	e.t.Helper()
	if _, err := e.pool.Exec(context.Background(), `UPDATE ferry.positions SET next_offset = $1 WHERE "group" = $2`, from, e.group); err != nil {
		e.t.Fatal(err)
	}
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`{"id":"m%d"}`, from+i)
	}
	e.save(from, out...)
}

// sums compares the sums with the rows.
func (e *env) sums() {
	e.t.Helper()
	for _, status := range []string{"delivered", "failed"} {
		e.is(patience, "0", `SELECT ((SELECT coalesce(sum(`+status+`), 0) FROM ferry.tallies) - (SELECT count(*) FROM ferry.deliveries WHERE status = $1))::text`, status)
	}
	e.is(patience, "0", `SELECT count(*)::text FROM ferry.deliveries d FULL JOIN ferry.failures f USING (message_id) WHERE (d.status = 'failed') <> (f.message_id IS NOT NULL)`)
}

var adminAddr = regexp.MustCompile(`"admin":"([^"]+)"`) //nolint:gochecknoglobals // a table

// metric waits until a series of the process, without labels, has the value.
func (e *env) metric(p *proctest.Proc, name string, want int) {
	e.t.Helper()
	p.WaitLog(`"admin":"`, patience)
	url := "http://" + adminAddr.FindStringSubmatch(p.Log())[1] + "/metrics"
	proctest.Eventually(e.t, patience, func() error {
		resp, err := http.Get(url) //nolint:noctx // a test
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("\n%s %d\n", name, want)
		if !strings.Contains(string(body), line) {
			at := strings.Index(string(body), "\n"+name)
			return fmt.Errorf("want %q, have %.60q", line, string(body)[max(0, at):])
		}
		return nil
	})
}
