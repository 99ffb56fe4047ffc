package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/ferry-forward/ferry/internal/forward"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/worker"
	"github.com/ferry-forward/ferry/riverjobs"
)

// operator acts as River UI does: by the API of a client that works nothing.
func (g *rig) operator() *river.Client[pgx.Tx] {
	g.t.Helper()
	c, err := river.NewClient(riverpgxv5.New(g.pool), &river.Config{Schema: "ferry", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

// reconcile is one run of the job.
func (g *rig) reconcile() (taken int) {
	g.t.Helper()
	w := worker.NewReconcile(worker.ReconcileConfig{
		Store: g.store, Logger: slog.New(slog.NewTextHandler(testWriter{g.t}, nil)), Reconciled: func(n int) { taken += n },
		Routes: []string{"r"}, Forwarder: "f1",
	})
	if err := w.Work(context.Background(), &river.Job[riverjobs.ReconcileArgs]{JobRow: &rivertype.JobRow{}}); err != nil {
		g.t.Fatal(err)
	}
	return taken
}

// job returns the id of the job that owns the message.
func (g *rig) job(key string) int64 {
	g.t.Helper()
	var id int64
	if err := g.pool.QueryRow(context.Background(), `SELECT d.job_id FROM ferry.deliveries d JOIN ferry.messages m ON m.id = d.message_id WHERE m.message_key = $1`, key).Scan(&id); err != nil {
		g.t.Fatal(err)
	}
	return id
}

const (
	doRetry  = "retry"
	doCancel = "cancel"
	doDelete = "delete"
)

// act does to the message's job what the button in River UI does.
func (g *rig) act(do, key string) {
	g.t.Helper()
	var err error
	switch id, op := g.job(key), g.operator(); do {
	case doRetry:
		_, err = op.JobRetry(context.Background(), id)
	case doCancel:
		_, err = op.JobCancel(context.Background(), id)
	case doDelete:
		_, err = op.JobDelete(context.Background(), id)
	}
	if err != nil {
		g.t.Fatalf("%s of the job of %s: %v", do, key, err)
	}
}

// The table of docs/operations.md: what an operator does to a job that does not run, and what becomes of its message.
func TestOperatorActions(t *testing.T) {
	t.Parallel()
	const (
		sent      = "delivered -"
		cancelled = "failed cancelled"
		rejected  = "failed rejected"
		exhausted = "failed exhausted"
	)
	cases := []struct {
		job, state string // how the message's job stands
		do         string
		want       string
		sends      int64 // after the action
	}{
		{"group", "available", doRetry, sent, 1},
		{"group", "available", doCancel, cancelled, 0},
		{"group", "available", doDelete, sent, 1},
		{"group", "scheduled", doRetry, sent, 1},
		{"group", "scheduled", doCancel, cancelled, 0},
		{"group", "scheduled", doDelete, sent, 1},
		{"group", "retryable", doRetry, sent, 1},
		{"group", "completed", doRetry, sent, 0},
		{"group", "completed", doCancel, sent, 0},
		{"group", "completed", doDelete, sent, 0},
		{"own", "scheduled", doRetry, sent, 1},
		{"own", "scheduled", doCancel, cancelled, 0},
		{"own", "scheduled", doDelete, "pending -", 0}, // waits on as long as before
		{"own", "retryable", doRetry, sent, 1},
		{"own", "retryable", doCancel, cancelled, 0},
		{"own", "retryable", doDelete, "pending -", 0},
		{"own", "completed", doRetry, sent, 0},
		{"own", "completed", doCancel, sent, 0},
		{"own", "completed", doDelete, sent, 0},
		{"own", "cancelled", doRetry, sent, 1},
		{"own", "cancelled", doCancel, rejected, 0},
		{"own", "cancelled", doDelete, rejected, 0},
		{"own", "discarded", doRetry, sent, 1},
		{"own", "discarded", doCancel, exhausted, 0},
		{"own", "discarded", doDelete, exhausted, 0},
	}
	g := newRig(t, 1)
	g.add(len(cases))
	for i, c := range cases {
		if c.job == "group" && c.state != "completed" {
			g.exec(`UPDATE ferry.river_job SET queue = 'later' WHERE id = $1`, g.job(fmt.Sprintf("k%d", i)))
		}
	}
	first := g.start(options{jobSize: 1}, func(_ context.Context, m *message.Message, d *message.Delivery) forward.Result {
		var i int
		_, _ = fmt.Sscanf(m.Key, "k%d", &i)
		switch c := cases[i]; {
		case c.state == "completed" && c.job == "own" && d.Requests == 0:
			return retryIn(time.Millisecond)
		case c.state == "retryable" && d.Requests == 0:
			return retryIn(time.Millisecond) // River calls the first wait of a job scheduled
		case c.state == "completed":
			return delivered()
		case c.state == "cancelled":
			return failed(message.Rejected, message.Reject, 400)
		case c.state == "discarded":
			return failed(message.Exhausted, message.Retry, 500)
		case c.state == "scheduled":
			return holdFor(time.Hour)
		}
		return retryIn(time.Hour)
	})
	before := make([]int64, len(cases))
	for i, c := range cases {
		key := fmt.Sprintf("k%d", i)
		if c.job == "own" || c.state == "completed" {
			g.is(c.state, jobOf, key)
		}
		before[i] = g.count(key).Load()
	}
	first.stop(t)
	for i, c := range cases {
		g.exec(`UPDATE ferry.river_job SET queue = 'r', state = $2::ferry.river_job_state,
			scheduled_at = CASE WHEN $2::text = 'available' THEN now() ELSE now() + interval '1 hour' END
			WHERE id = $1 AND queue = 'later'`, g.job(fmt.Sprintf("k%d", i)), c.state)
	}
	for i, c := range cases {
		g.act(c.do, fmt.Sprintf("k%d", i))
	}
	g.reconcile()
	g.start(options{jobSize: 1}, func(context.Context, *message.Message, *message.Delivery) forward.Result { return delivered() })
	for i, c := range cases {
		key := fmt.Sprintf("k%d", i)
		g.is(c.want, `SELECT status || ' ' || coalesce(reason, '-') FROM ferry.message_status WHERE message_key = $1`, key)
		if n := g.count(key).Load() - before[i]; n != c.sends {
			t.Errorf("%s job, %s, %s: sent %d times, want %d", c.job, c.state, c.do, n, c.sends)
		}
	}
	g.is("0", `SELECT count(*)::text FROM ferry.river_job WHERE state IN ('available', 'running')`)
	g.sums()
	g.orphanless()
	g.is("8", `SELECT count(*)::text FROM ferry.failures`)
}

// sums compares the sums with the rows.
func (g *rig) sums() {
	g.t.Helper()
	for _, status := range []string{"delivered", "failed"} {
		g.is("0", `SELECT ((SELECT coalesce(sum(`+status+`), 0) FROM ferry.tallies) - (SELECT count(*) FROM ferry.deliveries WHERE status = $1))::text`, status)
	}
	g.is("0", `SELECT count(*)::text FROM ferry.deliveries d FULL JOIN ferry.failures f USING (message_id) WHERE (d.status = 'failed') <> (f.message_id IS NOT NULL)`)
}

func (g *rig) orphanless() {
	g.t.Helper()
	g.is("0", `SELECT count(*)::text FROM ferry.deliveries d LEFT JOIN ferry.river_job j ON j.id = d.job_id
		WHERE d.status = 'pending' AND coalesce(j.state IN ('cancelled', 'completed', 'discarded'), true)`)
}

// Retry, cancel and delete of a job that runs: River refuses the delete and ignores the retry; after a cancel, what was
// sent is recorded as it was answered, and what was not sent fails.
func TestOperatorActionsOnRunningJobs(t *testing.T) {
	t.Parallel()
	g := newRig(t, 20)
	g.add(6)
	sending, release := make(chan string, 20), make(chan struct{})
	g.start(options{concurrency: 2}, func(ctx context.Context, m *message.Message, _ *message.Delivery) forward.Result {
		sending <- m.Key
		select {
		case <-release:
		case <-ctx.Done():
			return forward.Result{Status: message.StatusPending, Aborted: true}
		}
		if m.Key == "k1" {
			return retryIn(time.Hour)
		}
		return delivered()
	})
	<-sending
	<-sending
	id := g.job("k0")
	if _, err := g.operator().JobDelete(t.Context(), id); !errors.Is(err, rivertype.ErrJobRunning) {
		t.Errorf("delete of a running job: %v", err)
	}
	g.act(doRetry, "k0")
	g.act(doCancel, "k0")
	g.is("true", `SELECT (metadata ? 'cancel_attempted_at')::text FROM ferry.river_job WHERE id = $1`, id)
	g.is("2", `SELECT count(*)::text FROM ferry.deliveries d JOIN ferry.river_job j ON j.id = d.job_id WHERE requests = 0 AND j.state = 'running' AND d.message_id <= 2`)
	close(release)
	g.is("delivered - 1 1", statusOf, "k0")
	g.is("pending - 1 1", statusOf, "k1") // it has a job of its own by now, which nobody cancelled
	g.is("scheduled", jobOf, "k1")
	g.is("cancelled", `SELECT state::text FROM ferry.river_job WHERE id = $1`, id)
	if n := g.reconcile(); n != 4 {
		t.Errorf("%d reconciled, want the 4 that were not sent", n)
	}
	for _, k := range []string{"k2", "k3", "k4", "k5"} {
		g.is("failed cancelled 0 0", statusOf, k)
		g.is("cancelled", jobOf, k)
		if g.count(k).Load() != 0 {
			t.Errorf("%s was sent after the cancel", k)
		}
	}
	g.sums()
	g.act(doRetry, "k3")
	g.is("delivered - 1 1", statusOf, "k3")
	g.sums()
}

// A message's own job is cancelled while its request is in flight: the answer counts, and unless it settles the message,
// the message fails.
func TestCancelOwnJobInFlight(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		then                  func() forward.Result
		recorded, job, ending string
	}{
		"delivered": {delivered, "delivered - 1 2", "completed", "delivered - 1 2"},
		"retry":     {func() forward.Result { return retryIn(time.Hour) }, "pending - 1 2", "cancelled", "failed cancelled 1 2"},
		"rejected":  {func() forward.Result { return failed(message.Rejected, message.Reject, 400) }, "failed rejected 1 2", "cancelled", "failed rejected 1 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, 1)
			g.add(1)
			var n atomic.Int64
			inFlight, release := make(chan struct{}), make(chan struct{})
			g.start(options{jobSize: 1}, func(ctx context.Context, _ *message.Message, _ *message.Delivery) forward.Result {
				switch n.Add(1) {
				case 1:
					return holdFor(time.Millisecond)
				case 2:
					close(inFlight)
					select {
					case <-release:
					case <-ctx.Done():
						return forward.Result{Status: message.StatusPending, Aborted: true}
					}
					return c.then()
				}
				return delivered()
			})
			g.wait(inFlight)
			g.act(doCancel, "k0")
			close(release)
			g.is(c.recorded, statusOf, "k0")
			g.is(c.job, jobOf, "k0")
			g.reconcile()
			g.is(c.ending, statusOf, "k0")
			g.sums()
			if name != "delivered" {
				g.act(doRetry, "k0")
				g.is("delivered - 1 3", statusOf, "k0")
				g.sums()
			}
		})
	}
}

// Replays by command run beside the worker: failed messages whose jobs still run, were retried in River UI, or have ended.
// Each replay sends once, and the jobs that owned the messages before do nothing more.
func TestReplayBesideTheWorker(t *testing.T) {
	t.Parallel()
	const n = 40
	g := newRig(t, 20)
	g.add(n)
	var up atomic.Bool
	g.start(options{}, func(_ context.Context, m *message.Message, _ *message.Delivery) forward.Result {
		if up.Load() || m.ID%4 == 0 {
			return delivered()
		}
		return failed(message.Rejected, message.Reject, 400)
	})
	filter := store.ReplayFilter{Status: message.StatusFailed, Routes: []string{"r"}}
	sel, err := g.store.SelectReplay(t.Context(), filter)
	if err != nil {
		t.Fatal(err)
	}
	replay := func(text string) (replayed int) {
		t.Helper()
		r, err := g.store.BeginReplay(t.Context(), text, true)
		for step := (store.ReplayStep{}); err == nil && !step.Finished; replayed += step.Replayed {
			step, err = g.store.StepReplay(t.Context(), r.ID, sel, 3)
		}
		if err != nil {
			t.Fatal(err)
		}
		return replayed
	}
	// While they fail, and the jobs that show them as failed have not run yet: each is replayed once a replay.
	sent := int64(n)
	for round := range 5 {
		sent += int64(replay(fmt.Sprint("round ", round)))
	}
	g.is("0", `SELECT count(*)::text FROM ferry.deliveries WHERE status = 'pending'`)
	g.is("0", `SELECT count(*)::text FROM ferry.river_job WHERE state NOT IN ('completed', 'cancelled', 'discarded')`)
	g.is(fmt.Sprint(sent), `SELECT count(*)::text FROM ferry.attempts`)
	g.sums()
	// Their jobs are retried in River UI in the moment of the replay.
	g.is("30", `SELECT count(*)::text FROM ferry.failures`)
	up.Store(true)
	retried := make(chan struct{})
	var keys []string
	for i := range n {
		if key := fmt.Sprintf("k%d", i); (i+1)%4 != 0 {
			keys = append(keys, key)
		}
	}
	ids := make([]int64, len(keys))
	for i, key := range keys {
		ids[i] = g.job(key)
	}
	go func() {
		defer close(retried)
		op := g.operator()
		for i := range ids {
			if _, err := op.JobRetry(context.Background(), ids[len(ids)-1-i]); err != nil {
				t.Error(err)
			}
		}
	}()
	replay("at last")
	<-retried
	g.is(fmt.Sprint(n), `SELECT count(*)::text FROM ferry.deliveries WHERE status = 'delivered'`)
	g.is("0", `SELECT count(*)::text FROM ferry.river_job WHERE state NOT IN ('completed', 'cancelled', 'discarded')`)
	g.is(fmt.Sprint(sent+30), `SELECT count(*)::text FROM ferry.attempts`)
	g.sums()
	g.orphanless()
}

const rescue = `UPDATE ferry.river_job SET state = 'available', scheduled_at = now(), finalized_at = NULL, errors = array_append(errors,
	jsonb_build_object('at', now(), 'attempt', 1, 'error', 'Stuck job rescued by JobRescuer', 'trace', '')) WHERE id = $1`

// A run that comes after a rescue, of a message that waits or has failed, sends nothing; a retry by hand after it does.
func TestRetryAfterRescue(t *testing.T) {
	t.Parallel()
	g := newRig(t, 1)
	g.add(2)
	var up atomic.Bool
	g.start(options{jobSize: 1}, func(_ context.Context, m *message.Message, _ *message.Delivery) forward.Result {
		switch {
		case up.Load():
			return delivered()
		case m.Key == "k0":
			return holdFor(time.Hour)
		}
		return failed(message.Rejected, message.Reject, 400)
	})
	g.is("scheduled", jobOf, "k0")
	g.is("cancelled", jobOf, "k1")
	up.Store(true)
	g.exec(rescue, g.job("k0"))
	g.exec(rescue, g.job("k1"))
	g.is("scheduled", jobOf, "k0")
	g.is("cancelled", jobOf, "k1")
	if n := g.count("k0").Load() + g.count("k1").Load(); n != 2 {
		t.Fatalf("%d requests, want 2: the rescued runs sent", n)
	}
	g.act(doRetry, "k0")
	g.act(doRetry, "k1")
	g.is("delivered - 1 2", statusOf, "k0")
	g.is("delivered - 1 2", statusOf, "k1")
	g.sums()
}

// A leader with shorter times rescued a job whose run may go on: the next run waits for that one's end.
func TestRescuedTooEarly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old       int // milliseconds
		state     string
		delivered string
	}{"older leader": {20_000, "scheduled", "0"}, "one file everywhere": {60_000, "completed", "3"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, 20)
			g.add(3)
			g.exec(`INSERT INTO ferry.forwarders (id, version, routes, rescue_after_ms) VALUES ('new', 'v', '{r}', 60000), ('old', 'v', '{r}', $1)`, c.old)
			id := g.job("k0")
			g.exec(`UPDATE ferry.river_job SET attempt = 1, attempted_at = now() - interval '21 s', attempted_by = '{new}'`)
			g.exec(rescue, id)
			g.start(options{}, func(context.Context, *message.Message, *message.Delivery) forward.Result { return delivered() })
			g.is(c.state, `SELECT state::text FROM ferry.river_job WHERE id = $1`, id)
			g.is(c.delivered, `SELECT count(*)::text FROM ferry.deliveries WHERE status = 'delivered'`)
			if c.state == "scheduled" {
				g.is("true", `SELECT (scheduled_at - now() BETWEEN interval '25 s' AND interval '41 s')::text FROM ferry.river_job WHERE id = $1`, id)
				if g.count("k0").Load() != 0 {
					t.Error("sent beside the run that may go on")
				}
			}
		})
	}
}

// However many are found, the log has a line for each kind and a few examples.
func TestReconcileTellsOnce(t *testing.T) {
	t.Parallel()
	g := newRig(t, 50)
	g.add(300)
	g.exec(`DELETE FROM ferry.river_job`)
	var lines atomic.Int64
	w := worker.NewReconcile(worker.ReconcileConfig{
		Store: g.store, Logger: slog.New(slog.NewTextHandler(counting{&lines}, nil)), Reconciled: func(int) {},
		Routes: []string{"r"}, Forwarder: "f1",
	})
	if err := w.Work(t.Context(), &river.Job[riverjobs.ReconcileArgs]{JobRow: &rivertype.JobRow{}}); err != nil {
		t.Fatal(err)
	}
	if n := lines.Load(); n != 11 {
		t.Errorf("%d lines, want a warning and 10 examples", n)
	}
	g.orphanless()
	g.is("300", `SELECT count(*)::text FROM ferry.unsettled`)
}

type counting struct{ n *atomic.Int64 }

func (c counting) Write(p []byte) (int, error) { c.n.Add(1); return len(p), nil }

// There is one reconcile job at a time; one that was discarded stands in nobody's way.
func TestReconcileIsUnique(t *testing.T) {
	t.Parallel()
	g := newRig(t, 1)
	insert := func() bool {
		t.Helper()
		r, err := g.operator().Insert(t.Context(), riverjobs.ReconcileArgs{}, riverjobs.MaintenanceOpts())
		if err != nil {
			t.Fatal(err)
		}
		return !r.UniqueSkippedAsDuplicate
	}
	if !insert() || insert() {
		t.Fatal("not exactly one was inserted")
	}
	for state, want := range map[string]bool{"running": false, "completed": true, "discarded": true, "cancelled": true} {
		g.exec(`DELETE FROM ferry.river_job`)
		insert()
		finalized := "NULL"
		if want {
			finalized = "now()"
		}
		g.exec(`UPDATE ferry.river_job SET state = $1, finalized_at = `+finalized, state)
		if got := insert(); got != want {
			t.Errorf("beside one that is %s: inserted %v, want %v", state, got, want)
		}
	}
}
