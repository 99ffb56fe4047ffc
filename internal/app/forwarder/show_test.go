package forwarder_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

const showRoutes = `version: 1
vars: {token: "${TOKEN}"}
routes:
  - name: events
    topics: [t]
    request:
      url: '${PLATFORM}/lots/\(.park)?key=${TOKEN}'
      headers: {Authorization: 'Bearer ${TOKEN}', X-Api-Key: written-here, X-Park: '\(.park)'}
      forward_headers: ["x-*"]
      body: '{token: $vars.token, n: .n, again: ($vars.token | ascii_upcase), attempt: $attempt}'
    dead_letter: {topic: dead}
  - name: orders
    topics: [t]
    retry: {max_age: 1h}
    request: {url: "http://${PLATFORM_HOST}/x", headers: {Authorization: 'Basic \("u:\($vars.token)" | @base64)'}}
`

// shown fills a scene with a message of each kind, whose ids are 1, 2, ….
func shown(t *testing.T) *replayScene {
	t.Helper()
	s := newReplayScene(t)
	s.route(showRoutes)
	s.env = append(s.env, "PLATFORM_HOST=127.0.0.1:1")
	at := time.Date(2026, 12, 3, 9, 59, 0, 0, time.UTC)
	put := func(route, key string, r message.Record, result message.IngestResult) {
		s.saved++
		r.Topic, r.Offset, r.TopicID = "t", int64(s.saved), message.TopicID{1}
		if _, err := s.store.Save(t.Context(), &message.Batch{Group: "g", Incoming: []message.Incoming{{Route: route, Key: key, Record: &r, Result: result, Detail: "invalid byte"}}}); err != nil {
			t.Fatal(err)
		}
	}
	headers := []message.Header{
		{Name: "x-trace", Value: []byte("a b\x1b[2J")}, {Name: "x-null"}, {Name: "x-token", Value: []byte("device-token")}, {Name: "bin", Value: []byte{0xff, 0}},
	}
	put("events", "e1", message.Record{Key: []byte("P1"), Value: []byte(`{"n":1.10,"park":"a/b","big":123456789012345678901}`), Headers: headers, Timestamp: at}, message.IngestStored) // 1
	put("events", "e2", message.Record{Value: []byte(`{"n":2,"park":"P"}`)}, message.IngestStored)                                                                                      // 2
	put("events", "e3", message.Record{Value: []byte(`no JSON`)}, message.IngestStored)                                                                                                 // 3
	put("orders", "e1", message.Record{Key: []byte{0xfe}, Value: append([]byte{0, 0, 0, 0, 42}, "\xffavro"...)}, message.IngestStored)                                                  // 4
	put("gone", "g", message.Record{}, message.IngestStored)                                                                                                                            // 5
	put("events", "e1", message.Record{Value: []byte(`{"n":"another"}`)}, message.IngestStored)                                                                                         // 7, since the try to store it as e1 took a number
	put("events", "e7", message.Record{Value: []byte("a\x00b")}, message.IngestUnstorable)                                                                                              // 8
	put("orders", "o8", message.Record{Value: []byte(strings.Repeat("long line\n", 10_000))}, message.IngestStored)                                                                     // 9
	put("orders", "o9", message.Record{Value: []byte(`{"pending": true}`)}, message.IngestStored)                                                                                       // 10
	if ids := s.value("SELECT string_agg(id::text, ',' ORDER BY id) FROM ferry.messages"); ids != "1,2,3,4,5,7,8,9,10" {
		t.Fatal(ids)
	}
	sent := func(id int64, o store.Outcome, a message.Attempt) {
		o.MessageID, o.Forwarder = id, "host-1-abc"
		o.Route, o.Key = s.value("SELECT route FROM ferry.messages WHERE id = $1", id), s.value("SELECT message_key FROM ferry.messages WHERE id = $1", id)
		_, _ = fmt.Sscan(s.value("SELECT job_id FROM ferry.deliveries WHERE message_id = $1", id), &o.JobID)
		o.Attempt = &a
		if _, err := s.store.Settle(t.Context(), []store.Outcome{o}); err != nil {
			t.Fatal(err)
		}
	}
	fault := message.Attempt{StartedAt: at.Add(time.Minute), Duration: 87 * time.Millisecond, Verdict: message.Retry, HTTPStatus: 503, Error: "status 503"}
	later := time.Date(2036, 1, 2, 3, 4, 5, 0, time.UTC)
	sent(1, store.Outcome{Status: message.StatusPending, NextAttemptAt: later, Counted: true}, fault)
	held := message.Attempt{StartedAt: at.Add(2 * time.Minute), Duration: time.Second, Verdict: message.Hold, ErrorClass: message.ErrConnect, Error: "connect: refused\nby geheim"}
	sent(1, store.Outcome{Status: message.StatusPending, NextAttemptAt: later}, held)
	refusal := message.Attempt{StartedAt: at.Add(3 * time.Minute), Duration: 12 * time.Millisecond, Verdict: message.Reject, HTTPStatus: 200, ErrorCode: "998", Response: "{\n \"errcode\": 998,\n \"got\": \"geheim\"}\x1b[2J\n"}
	sent(2, store.Outcome{Status: message.StatusFailed, Reason: message.Rejected, Detail: "refused by the platform", Counted: true}, refusal)
	sent(9, store.Outcome{Status: message.StatusDelivered, Counted: true}, message.Attempt{StartedAt: at.Add(4 * time.Minute), Duration: 5 * time.Millisecond, Verdict: message.Delivered, HTTPStatus: 204})
	sent(4, store.Outcome{Status: message.StatusFailed, Reason: message.Exhausted, Counted: true}, fault)
	s.exec("UPDATE ferry.deliveries SET attempts = 5, requests = 9 WHERE message_id = 4")
	s.timeless()
	// Long before any clock, or long after.
	s.exec("UPDATE ferry.deliveries SET due_from = CASE WHEN message_id = 10 THEN '2020-01-01T00:00:00Z'::timestamptz ELSE '2036-01-01T00:00:00Z' END")
	s.exec("UPDATE ferry.river_job SET scheduled_at = '2026-12-03T10:00:00Z' WHERE state = 'available'")
	s.exec("UPDATE ferry.deliveries SET dead_lettered_at = '2026-12-03T12:30:00Z' WHERE message_id = 2")
	s.exec("DELETE FROM ferry.river_job WHERE id = (SELECT job_id FROM ferry.deliveries WHERE message_id = 3)")
	s.exec("INSERT INTO ferry.forwarders (id, version, routes) VALUES ('host-1-abc', 'v', '{events,gone}')")
	return s
}

var (
	passing = regexp.MustCompile(`, \S+ ago|, in \S+; Retry`)
	agents  = regexp.MustCompile(`ferry/[^\s"]+`)
	hours   = regexp.MustCompile(`scheduled at 20[^\n]*`)
)

// timelessly takes out of a text what another run has otherwise.
func timelessly(s string) string {
	s = passing.ReplaceAllStringFunc(s, func(m string) string {
		if strings.HasSuffix(m, "ago") {
			return ", 3m ago"
		}
		return ", in 3m; Retry"
	})
	return hours.ReplaceAllStringFunc(agents.ReplaceAllString(s, "ferry/v1"), func(m string) string {
		if strings.HasPrefix(m, "scheduled at 2036") || strings.HasPrefix(m, "scheduled at 2026-12-03T10:00:00.") {
			return m
		}
		return "scheduled at NOW"
	})
}

func TestShow(t *testing.T) {
	t.Parallel()
	s := shown(t)
	var all strings.Builder
	for _, id := range []int{1, 2, 3, 4, 5, 7, 8, 10} {
		all.WriteString(timelessly(s.run("show", fmt.Sprint("id:", id))))
	}
	golden(t, "show.txt", all.String())

	// What is long is cut, the rest is told how to get.
	out := s.run("show", "o8")
	for _, want := range []string{"--- payload, 100,000 bytes, text\n", "… cut: 65,536 of 100,000 bytes are shown; --raw writes", "status        delivered\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%.2000s", want, out)
		}
	}
	if raw, _, code := forwarder(t, s.env, "show", "o8", "--raw"); code != 0 || raw != strings.Repeat("long line\n", 10_000) {
		t.Errorf("exit %d, %d bytes", code, len(raw))
	}
}

func TestShowFinds(t *testing.T) {
	t.Parallel()
	s := shown(t)
	s.exec("UPDATE ferry.river_job SET state = 'running', attempted_at = now() WHERE id = (SELECT job_id FROM ferry.deliveries WHERE message_id = 10)")
	s.exec("DELETE FROM ferry.deliveries WHERE message_id = 4")
	s.exec("UPDATE ferry.messages SET payload = NULL WHERE id = 8")
	var all strings.Builder
	for _, args := range []string{
		"e1", "nothing", "id:99", "key:", "id:x", "", "e1 e2", "e1 --json --raw", "e1 --route orders2", "e2 --route orders", "e3 --raw", "key:e7 --raw", "id:5 --raw", "id:0",
	} {
		all.WriteString(s.run(append([]string{"show"}, strings.Fields(args)...)...))
	}
	golden(t, "show-refused.txt", all.String())
	if out := s.run("show", "e1", "--route", "orders"); !strings.Contains(out, "message       id:4\n") || !strings.Contains(out, "unknown: its row in ferry.deliveries is gone") {
		t.Error(out)
	}
	if out := s.run("show", "o9"); !strings.Contains(out, "- it is being worked on, by job ") {
		t.Error(out)
	}
	for state, want := range map[string]string{
		"completed": ", has ended (completed): reconcile gives it a new one", "cancelled": ", was cancelled, and reconcile fails it within a minute; Retry",
	} {
		s.exec("UPDATE ferry.river_job SET state = $1::text::ferry.river_job_state, finalized_at = now() WHERE id = (SELECT job_id FROM ferry.deliveries WHERE message_id = 10)", state)
		if out := s.run("show", "o9"); !strings.Contains(out, want) {
			t.Error(out)
		}
	}
	s.exec("UPDATE ferry.deliveries SET job_id = NULL WHERE message_id = 10")
	s.exec("UPDATE ferry.messages SET lane = 'L' WHERE id = 10")
	if out := s.run("show", "o9"); !strings.Contains(out, "- it waits in its lane, L, behind the messages before it\n") {
		t.Error(out)
	}
	if _, stderr, code := forwarder(t, append(routes(t, replayRoutes), away), "show", "e1"); code != 3 ||
		strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "FERRY_DATABASE_URL") {
		t.Errorf("without a database: exit %d\n%s", code, stderr)
	}
}

// waiting returns how many sessions wait for a lock.
func (s *replayScene) waiting() string {
	s.Helper()
	return s.value("SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
}

// Ctrl-C ends list and show at once, and cleanly, whatever the database is at.
func TestLookingIsInterrupted(t *testing.T) {
	t.Parallel()
	s := shown(t)
	tx, err := s.store.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "LOCK TABLE ferry.attempts, ferry.failures"); err != nil {
		t.Fatal(err)
	}
	for i, args := range [][]string{{"list", "--status", "failed"}, {"show", "id:1"}} {
		p := proctest.Start(t, binaries.Path(t, "forwarder"), s.env, args...)
		proctest.Eventually(t, patience, func() error {
			if n := s.waiting(); n != "1" {
				return fmt.Errorf("%s sessions wait", n)
			}
			return nil
		})
		if code, took := p.Term(patience); code != 0 || took > 5*time.Second || p.Log() != "" {
			t.Errorf("%d: exit %d after %s\n%s", i, code, took, p.Log())
		}
		proctest.Eventually(t, patience, func() error {
			if n := s.waiting(); n != "0" {
				return fmt.Errorf("%s sessions wait", n)
			}
			return nil
		})
	}
}

func TestShowJSON(t *testing.T) {
	t.Parallel()
	s := shown(t)
	schema, err := jsonschema.NewCompiler().Compile("../../../docs/schemas/show.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type shownJSON struct {
		Message  map[string]any
		Attempts []map[string]any
		Job      map[string]any
	}
	object := map[int]shownJSON{}
	for _, id := range []int{1, 2, 3, 4, 5, 7, 8, 9, 10} {
		stdout, stderr, code := forwarder(t, s.env, "show", fmt.Sprint("id:", id), "--json")
		if code != 0 || stderr != "" {
			t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
		}
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(stdout))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("message %d: %v\n%s", id, err, stdout)
		}
		var o shownJSON
		if err := json.Unmarshal([]byte(stdout), &o); err != nil {
			t.Fatal(err)
		}
		object[id] = o
	}
	is := func(what string, got, want any) {
		t.Helper()
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if string(a) != string(b) {
			t.Errorf("%s is %s, want %s", what, a, b)
		}
	}
	is("a payload", object[1].Message["payload"], `{"n":1.10,"park":"a/b","big":123456789012345678901}`)
	is("bytes", object[4].Message["payload_base64"], base64.StdEncoding.EncodeToString([]byte("\x00\x00\x00\x00\x2a\xffavro")))
	is("a key of bytes", object[4].Message["kafka_key_base64"], "/g==")
	is("a tombstone", object[5].Message["payload"], nil)
	is("a route that is not there", object[5].Message["request"], nil)
	is("headers", object[1].Message["headers"], []map[string]any{
		{"name": "x-trace", "value": "a b\x1b[2J"}, {"name": "x-null", "value": nil}, {"name": "x-token", "value": "***"}, {"name": "bin", "value_base64": "/wA="},
	})
	is("the attempts", len(object[1].Attempts), 2)
	is("an error", object[1].Attempts[1]["error"], "connect: refused\nby ${TOKEN}")
	is("a job that is gone", object[3].Job["state"], "missing")
	is("a conflict's other", object[7].Message["conflicts"], []map[string]any{{"message_id": 1, "message_key": "e1"}})
	is("a conflict", object[1].Message["conflicts"].([]any)[0].(map[string]any)["message_id"], 7)
	request := object[1].Message["request"].(map[string]any)
	is("a URL", request["url"], "${PLATFORM}/lots/a%2Fb?key=${TOKEN}")
	if v, err := jsonschema.UnmarshalJSON(strings.NewReader(`{"message":{},"attempts":[],"job":null}`)); err != nil || schema.Validate(v) == nil {
		t.Error("the schema takes anything")
	}
}
