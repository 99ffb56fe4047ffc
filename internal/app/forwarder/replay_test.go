package forwarder_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// replayScene is a database with messages that were settled, and the settings of a forwarder that knows their routes.
type replayScene struct {
	*testing.T
	store *store.Store
	env   []string
	dir   string
	saved int
}

const replayRoutes = `version: 1
routes:
  - name: events
    topics: [t]
    request: {url: "${PLATFORM}/x"}
  - name: orders
    topics: [t]
    request: {url: "${PLATFORM}/x"}
`

func newReplayScene(t *testing.T) *replayScene {
	t.Helper()
	db := pgtest.New(t)
	st, err := store.Open(t.Context(), store.Config{URL: db})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	s := &replayScene{T: t, store: st, env: append(routes(t, replayRoutes), "FERRY_DATABASE_URL="+db)}
	s.dir = filepath.Dir(strings.TrimPrefix(s.env[0], "FERRY_ROUTES="))
	return s
}

// save stores records of the route as they come in, each with a value of its own.
func (s *replayScene) save(route string, result message.IngestResult, keys ...string) {
	s.Helper()
	b := &message.Batch{Group: "g"}
	for _, key := range keys {
		s.saved++
		b.Incoming = append(b.Incoming, message.Incoming{Route: route, Key: key, Result: result, Record: &message.Record{
			Position: message.Position{TopicPartition: message.TopicPartition{Topic: "t"}, Offset: int64(s.saved)}, Value: fmt.Append(nil, s.saved),
		}})
	}
	if _, err := s.store.Save(s.Context(), b); err != nil {
		s.Fatal(err)
	}
}

// settle settles all pending messages whose key is like the pattern.
func (s *replayScene) settle(status message.Status, reason message.Reason, pattern string) {
	s.Helper()
	rows, err := s.store.Pool().Query(s.Context(), `SELECT m.id, m.route, m.message_key, d.job_id FROM ferry.messages m
		JOIN ferry.deliveries d ON d.message_id = m.id WHERE d.status = 'pending' AND m.message_key LIKE $1`, pattern)
	if err != nil {
		s.Fatal(err)
	}
	outcomes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.Outcome, error) {
		o := store.Outcome{Status: status, Reason: reason, Forwarder: "f1"}
		return o, row.Scan(&o.MessageID, &o.Route, &o.Key, &o.JobID)
	})
	if err != nil {
		s.Fatal(err)
	}
	if status == message.StatusPending {
		for i := range outcomes {
			outcomes[i].NextAttemptAt = time.Date(2036, 1, 2, 3, 4, 5, 0, time.UTC)
		}
	}
	if _, err := s.store.Settle(s.Context(), outcomes); err != nil {
		s.Fatal(err)
	}
}

func (s *replayScene) exec(sql string, args ...any) {
	s.Helper()
	if _, err := s.store.Pool().Exec(s.Context(), sql, args...); err != nil {
		s.Fatalf("%s: %v", sql, err)
	}
}

func (s *replayScene) value(sql string, args ...any) string {
	s.Helper()
	var v *string
	if err := s.store.Pool().QueryRow(s.Context(), "SELECT ("+sql+")::text", args...).Scan(&v); err != nil {
		s.Fatalf("%s: %v", sql, err)
	}
	if v == nil {
		return ""
	}
	return *v
}

// timeless gives all rows fixed times.
func (s *replayScene) timeless() {
	s.Helper()
	s.exec("UPDATE ferry.messages SET received_at = '2026-12-03T10:00:00Z'::timestamptz + id * interval '1 minute'")
	s.exec("UPDATE ferry.deliveries SET settled_at = '2026-12-03T12:00:00Z'::timestamptz + message_id * interval '1 minute' WHERE status <> 'pending'")
}

var (
	spans  = regexp.MustCompile(`in [0-9.]+ s \([0-9]+ a second\)`)
	stamps = regexp.MustCompile(`begun at [0-9TZ:-]+`)
)

// replay runs the command, and returns what it printed, with the code, as a terminal's user sees it.
func (s *replayScene) replay(args ...string) string {
	s.Helper()
	stdout, stderr, code := forwarder(s.T, s.env, append([]string{"replay"}, args...)...)
	if code != 0 && (stdout != "" || strings.Count(stderr, "\n") != 1) {
		s.Errorf("%v: exit %d with more than one line:\n%s%s", args, code, stdout, stderr)
	}
	out := fmt.Sprintf("$ forwarder replay %s\n%s%s", strings.Join(args, " "), stderr, stdout)
	if code != 0 {
		out += fmt.Sprintf("exit code %d\n", code)
	}
	out = strings.ReplaceAll(out, s.dir+"/", "")
	return stamps.ReplaceAllString(spans.ReplaceAllString(out, "in 0.1 s (1234 a second)"), "begun at 2026-12-03T12:30:00Z")
}

// golden compares what commands print with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: -update writes it anew\n%s", path, got)
	}
}

func TestReplayCommand(t *testing.T) {
	t.Parallel()
	s := newReplayScene(t)
	s.save("events", message.IngestStored, "e0", "e1", "e2", "e3", "e4")
	s.save("orders", message.IngestStored, "o6", "o7", "o8")
	s.save("events", message.IngestStored, "e0") // a conflict
	s.save("events", message.IngestUnstorable, "e10")
	s.save("gone", message.IngestStored, "g11")
	s.save("orders", message.IngestStored, "e0")
	s.save("events", message.IngestStored, "odd key\x1b[2J")
	s.settle(message.StatusFailed, message.Rejected, "e0")
	s.settle(message.StatusFailed, message.Exhausted, "e1")
	s.settle(message.StatusDelivered, "", "e2")
	s.settle(message.StatusPending, "", "e3")
	s.settle(message.StatusFailed, message.Rejected, "o6")
	s.settle(message.StatusDelivered, "", "o7")
	s.settle(message.StatusFailed, message.Rejected, "g11")
	s.settle(message.StatusFailed, message.Rejected, "odd%")
	s.timeless()
	s.exec("UPDATE ferry.river_job SET state = 'running' WHERE id = (SELECT job_id FROM ferry.deliveries WHERE message_id = 8)")
	before := s.value("SELECT array_agg(d ORDER BY message_id) FROM ferry.deliveries d")
	var all strings.Builder
	for _, args := range [][]string{
		{"--status", "failed", "--dry-run"},
		{"--status", "failed", "--dry-run", "--json"},
		{"--reason", "rejected", "--route", "orders", "--dry-run"},
		{"--since", "2026-12-03T10:02:00Z", "--until", "2026-12-03T10:10:00Z", "--dry-run"},
		{"--status", "delivered", "--since", "2026-12-03T00:00:00Z", "--dry-run"},
		{"--reason", "expired", "--dry-run"},
		{"--reason", "expired", "--yes"},
		{"key:e1", "id:6", "--dry-run"},
		{"e0", "--dry-run"},
		{"e0", "--route", "orders", "--dry-run"},
		{"nothing", "--yes"},
		{"id:99", "--yes"},
		{"e2", "--yes"},
		{"e3", "--yes"},
		{"e4", "--yes"},
		{"o8", "--yes"},
		{"e10", "--yes"},
		{"g11", "--yes"},
		{"e1", "--status", "delivered", "--yes"},
		{"e1", "e2", "e3", "--yes"},
		{"e1"},
	} {
		all.WriteString(s.replay(args...) + "\n")
	}
	if after := s.value("SELECT array_agg(d ORDER BY message_id) FROM ferry.deliveries d"); after != before {
		t.Errorf("what only looks, or is refused, changed messages:\n%s\n%s", before, after)
	}
	if n := s.value("SELECT count(*) FROM ferry.replays"); n != "0" {
		t.Errorf("%s replays were noted", n)
	}
	for _, args := range [][]string{
		{"--route", "events", "--reason", "exhausted", "--yes"},
		{"e0#00000000-0000-0000-0000-000000000000/0/9", "--new-key", "--yes"},
		{"e2", "--status", "delivered", "--yes", "--json"},
		{"--key", "o6", "id:14", "id:14", "--yes"},
		{"--status", "failed", "--yes"},
		{"--status", "failed", "--yes"},
	} {
		all.WriteString(s.replay(args...) + "\n")
	}
	golden(t, "replay.txt", all.String())
	if got := s.value("SELECT array_agg(message_id || ' ' || status || ' ' || key_revision ORDER BY message_id) FROM ferry.deliveries WHERE route <> 'gone'"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

const want = `{"1 pending 0","2 pending 0","3 pending 0","4 pending 0","5 pending 0","6 pending 0","7 delivered 0","8 pending 0","10 pending 1",` +
	`"11 failed 0","13 pending 0","14 pending 0"}`

func TestReplayWrongUse(t *testing.T) {
	t.Parallel()
	s := newReplayScene(t)
	var all strings.Builder
	for _, args := range [][]string{
		{},
		{"--dry-run"},
		{"--yes", "--json"},
		{"--status", "delivered", "--yes"},
		{"--status", "pending", "--yes"},
		{"--status", "lost", "--yes"},
		{"--reason", "lost", "--yes"},
		{"--reason", "unstorable", "--yes"},
		{"--reason", "rejected", "--status", "delivered", "--yes"},
		{"--route", "nowhere", "--yes"},
		{"--since", "yesterday", "--yes"},
		{"--until", "-2h", "--yes"},
		{"--since", "1h", "--until", "2h", "--yes"},
		{"--status", "failed", "--rate", "-1", "--yes"},
		{"--status", "failed", "--rate", "fast", "--yes"},
		{"key:a", "--since", "2h", "--yes"},
		{"key:a", "--restart", "--yes"},
		{"id:zero", "--yes"},
		{"", "--yes"},
		{"--status", "failed"},
		{"--fast"},
	} {
		out := s.replay(args...)
		if !strings.HasSuffix(out, "exit code 2\n") {
			t.Errorf("not refused: %s", out)
		}
		all.WriteString(out + "\n")
	}
	golden(t, "replay-refused.txt", all.String())
	if _, stderr, code := forwarder(t, append(routes(t, replayRoutes), away), "replay", "--status", "failed", "--yes"); code != 3 ||
		strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "FERRY_DATABASE_URL") {
		t.Errorf("without a database: exit %d\n%s", code, stderr)
	}
}

func TestReplayJSONSchema(t *testing.T) {
	t.Parallel()
	s := newReplayScene(t)
	s.save("events", message.IngestStored, "e0", "e1")
	s.settle(message.StatusFailed, message.Rejected, "e%")
	schema, err := jsonschema.NewCompiler().Compile("../../../docs/schemas/replay.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][]string{
		{`{"matched":2,"replayed":0}`, "--dry-run"},
		{`{"matched":2,"replayed":2}`, "--yes", "--rate", "0.5"},
		{`{"matched":0,"replayed":0}`, "--yes"},
	} {
		want, args := c[0], c[1:]
		stdout, stderr, code := forwarder(t, s.env, append([]string{"replay", "--route", "events", "--json"}, args...)...)
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(stdout))
		if err != nil || code != 0 || stdout != want+"\n" {
			t.Errorf("%v: exit %d, %v\n%s%s", args, code, err, stdout, stderr)
		}
		if err := schema.Validate(v); err != nil {
			t.Error(err)
		}
	}
	if v, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(`{"matched":1}`))); err != nil || schema.Validate(v) == nil {
		t.Error("the schema takes anything")
	}
}

// A replay that is interrupted by a signal ends its transaction, says how to go on, and goes on when the same is typed
// again: also a time ago, which means the same time as before.
func TestReplayInterrupted(t *testing.T) {
	t.Parallel()
	s := newReplayScene(t)
	keys := make([]string, 60)
	for i := range keys {
		keys[i] = fmt.Sprintf("e%d", i)
	}
	s.save("events", message.IngestStored, keys...)
	s.settle(message.StatusFailed, message.Rejected, "e%")
	args := []string{"replay", "--since", "1h", "--yes", "--json"}
	p := proctest.Start(t, binaries.Path(t, "forwarder"), s.env, append(args, "--rate", "10")...)
	proctest.Eventually(t, patience, func() error {
		if s.value("SELECT count(*) FROM ferry.deliveries WHERE status = 'pending'") < "10" {
			return fmt.Errorf("not begun")
		}
		return nil
	})
	p.Signal(syscall.SIGINT)
	if code := p.Wait(patience); code != 0 {
		t.Errorf("exit %d", code)
	}
	done := s.value("SELECT count(*) FROM ferry.deliveries WHERE status = 'pending'")
	if !strings.Contains(p.Log(), "stopped: "+done+" of 60 messages are replayed; run the same again within 24 hours") ||
		!strings.Contains(p.Log(), `{"matched":60,"replayed":`+done+`}`) {
		t.Errorf("after %s:\n%s", done, p.Log())
	}
	// The message of 61 minutes ago was 59 minutes old when the replay began.
	s.exec("UPDATE ferry.replays SET started_at = started_at - interval '2 minutes'")
	s.exec("UPDATE ferry.deliveries SET settled_at = settled_at - interval '10 minutes' WHERE status = 'failed'")
	s.exec("UPDATE ferry.messages SET received_at = now() - interval '61 minutes' WHERE id = 60")
	stdout, stderr, code := forwarder(t, s.env, args...)
	var left int
	_, _ = fmt.Sscan(done, &left)
	left = 60 - left
	if code != 0 || stdout != fmt.Sprintf("{\"matched\":%d,\"replayed\":%d}\n", left, left) || !strings.Contains(stderr, done+" messages are done: it goes on") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	if got := s.value("SELECT count(*) || ' ' || count(finished_at) || ' ' || sum(replayed) FROM ferry.replays"); got != "1 1 60" {
		t.Errorf("replays: %s", got)
	}
}
