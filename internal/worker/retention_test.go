package worker_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/worker"
	"github.com/ferry-forward/ferry/riverjobs"
)

// retain is one run of retention, and what it says of it in metrics and log.
func (g *rig) retain(routes ...*route.Route) (counted map[string]int64, log string) {
	g.t.Helper()
	counted = map[string]int64{}
	var out bytes.Buffer
	w := worker.NewRetention(worker.RetentionConfig{
		Store: g.store, Logger: slog.New(slog.NewTextHandler(&out, nil)), Routes: routes,
		Purged: func(route string, status message.Status, n int64) { counted[route+" "+status.String()] += n },
	})
	if err := w.Work(g.t.Context(), &river.Job[riverjobs.RetentionArgs]{JobRow: &rivertype.JobRow{}}); err != nil {
		g.t.Fatal(err)
	}
	return counted, out.String()
}

func retains(name string, delivered, failed time.Duration) *route.Route {
	return &route.Route{
		Name: name, Retention: route.Retention{Delivered: delivered, Failed: failed}, Retry: route.Retry{MaxAge: 72 * time.Hour},
	}
}

// Each route's messages go after its own retention; those of routes that the file does not have stay.
func TestRetention(t *testing.T) {
	t.Parallel()
	g := newRig(t, 10)
	g.add(6)
	g.exec(`UPDATE ferry.messages SET route = (ARRAY['r', 's', 't', 'r', 's', 't'])[id], received_at = now() - interval '2 hours'`)
	g.exec(`UPDATE ferry.deliveries SET route = (ARRAY['r', 's', 't', 'r', 's', 't'])[message_id], settled_at = now() - interval '2 hours',
		status = CASE WHEN message_id <= 3 THEN 'delivered' ELSE 'failed' END, reason = CASE WHEN message_id > 3 THEN 'rejected' END`)
	g.exec(`INSERT INTO ferry.failures (message_id, route, reason, failed_at) SELECT message_id, route, reason, settled_at FROM ferry.deliveries WHERE status = 'failed'`)
	r, s := retains("r", time.Hour, 3*time.Hour), retains("s", 3*time.Hour, time.Hour)
	counted, log := g.retain(r, s)
	if want := map[string]int64{"r delivered": 1, "s failed": 1}; fmt.Sprint(counted) != fmt.Sprint(want) {
		t.Errorf("counted %v, want %v", counted, want)
	}
	g.is("{2,3,4,6}", "SELECT array_agg(id ORDER BY id)::text FROM ferry.messages")
	if !strings.Contains(log, "delivered=map[r:1] failed=map[s:1] more=false") || strings.Count(log, "\n") != 1 {
		t.Error(log)
	}
	if counted, log := g.retain(r, s); len(counted) != 0 || log != "" {
		t.Error("a run with nothing to do:", counted, log)
	}
}

// What waits for its dead letter stays, and is told of with its number.
func TestRetentionWaitsForDeadLetters(t *testing.T) {
	t.Parallel()
	g := newRig(t, 10)
	g.add(5)
	g.exec(`UPDATE ferry.deliveries SET settled_at = now() - interval '2 hours', status = 'failed', reason = 'rejected',
		dead_lettered_at = CASE WHEN message_id > 3 THEN now() END`)
	g.exec(`INSERT INTO ferry.failures (message_id, route, reason, failed_at) SELECT message_id, route, reason, settled_at FROM ferry.deliveries`)
	r := retains("r", time.Hour, time.Hour)
	r.DeadLetter.Topic = "dead"
	counted, log := g.retain(r)
	if counted["r failed"] != 2 || !strings.Contains(log, "level=WARN") || !strings.Contains(log, "route=r messages=3") {
		t.Error(counted, log)
	}
	g.is("{1,2,3}", "SELECT array_agg(id ORDER BY id)::text FROM ferry.messages")
	if _, again := g.retain(r); strings.Count(again, "\n") != 1 {
		t.Error("not one line a run:", again)
	}
}

// Attempts stay for the longest retention and the longest max_age of the file.
func TestRetentionOfAttempts(t *testing.T) {
	t.Parallel()
	g := newRig(t, 10)
	r, s := retains("r", time.Hour, 20*time.Hour), retains("s", 48*time.Hour, time.Hour)
	s.Retry.MaxAge = time.Hour
	keep := 48*time.Hour + 72*time.Hour
	over := time.Now().Add(-keep).UTC().Truncate(24*time.Hour).AddDate(0, 0, -1) // its end is at the most a day longer ago than keep
	if err := g.store.EnsureAttemptPartitions(t.Context(), over, 2); err != nil {
		t.Fatal(err)
	}
	_, log := g.retain(r, s)
	g.is("attempts_default attempts_"+over.AddDate(0, 0, 1).Format("20060102"), `SELECT string_agg(relname, ' ' ORDER BY relname DESC)
		FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = 'ferry.attempts'::regclass`)
	if !strings.Contains(log, "days=["+over.Format(time.DateOnly)+"]") {
		t.Error(log)
	}
}
