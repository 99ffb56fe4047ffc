package forwarder_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
)

const auditRoutes = `version: 1
routes:
  - name: a
    topics: [events]
    dead_letter: {topic: dead}
    request: {method: POST, url: "${PLATFORM}/x"}
  - name: b
    topics: [events]
    request: {method: POST, url: "${PLATFORM}/x"}
`

// books are a database with messages in all states, and the settings of a forwarder.
type books struct {
	*testing.T
	url   string
	store *store.Store
	env   []string
	id    message.TopicID // of the topic events
	topic string
	next  int64 // offset in events/0
}

func newBooks(t *testing.T) *books {
	t.Helper()
	b := &books{T: t, url: pgtest.New(t), id: message.TopicID{0x11, 0x11}, topic: "events"}
	b.env = append(routes(t, auditRoutes), "FERRY_DATABASE_URL="+b.url)
	st, err := store.Open(t.Context(), store.Config{
		URL: b.url, JobSizes: map[string]int{"a": 4, "b": 4}, DeadLetters: map[string]string{"a": "dead"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	b.store = st
	return b
}

func (b *books) tp() message.TopicPartition { return message.TopicPartition{Topic: b.topic} }

// opened makes the position's row.
func (b *books) opened() {
	b.Helper()
	change := message.PositionChange{StoredPosition: message.StoredPosition{TopicPartition: b.tp(), TopicID: b.id, NextOffset: b.next}}
	if err := b.store.ChangePositions(b.Context(), "ferry", []message.PositionChange{change}); err != nil {
		b.Fatal(err)
	}
}

// alive is the sign of life of a forwarder, which holds however slow the test is.
func (b *books) alive() {
	b.Helper()
	if err := b.store.Heartbeat(b.Context(), store.Forwarder{ID: "f1", Routes: []string{"a", "b"}}); err != nil {
		b.Fatal(err)
	}
	b.exec("UPDATE ferry.forwarders SET seen_at = now() + interval '1 hour'")
}

// read stores a record for route a for each result.
func (b *books) read(results ...message.IngestResult) {
	b.Helper()
	batch := &message.Batch{Group: "ferry"}
	from := b.next
	for _, r := range results {
		key, value := fmt.Sprintf("key-%d", b.next), fmt.Sprintf(`{"n":%d}`, b.next)
		switch r {
		case message.IngestDuplicate: // of the first one
			key, value, r = "key-0", `{"n":0}`, message.IngestStored
		case message.IngestConflict:
			key, r = "key-0", message.IngestStored
		case message.IngestStored, message.IngestFiltered, message.IngestTombstone, message.IngestUnstorable:
		}
		batch.Incoming = append(batch.Incoming, message.Incoming{
			Route: "a", Key: key, Result: r,
			Record: &message.Record{
				Position: message.Position{TopicPartition: b.tp(), TopicID: b.id, Offset: b.next}, Value: []byte(value),
			},
		})
		b.next++
	}
	batch.Advances = []message.Advance{{TopicPartition: b.tp(), TopicID: b.id, From: from, To: b.next}}
	if _, err := b.store.Save(b.Context(), batch); err != nil {
		b.Fatal(err)
	}
}

// settle gives messages an outcome.
func (b *books) settle(status message.Status, ids ...int64) {
	b.Helper()
	loaded, err := b.store.Load(b.Context(), ids)
	if err != nil {
		b.Fatal(err)
	}
	var outcomes []store.Outcome
	for _, id := range ids {
		it := loaded.Items[id]
		o := store.Outcome{
			MessageID: id, JobID: it.JobID, Route: it.Route, Key: it.Message.Key, Status: status, Counted: true, Forwarder: "f1",
			Attempt: &message.Attempt{StartedAt: time.Now(), Verdict: message.Delivered, HTTPStatus: 200},
		}
		switch status {
		case message.StatusPending:
			o.Attempt.Verdict, o.Attempt.HTTPStatus, o.NextAttemptAt = message.Retry, 500, time.Now().Add(time.Hour)
		case message.StatusFailed:
			o.Attempt.Verdict, o.Attempt.HTTPStatus, o.Reason = message.Reject, 400, message.Rejected
		case message.StatusDelivered:
		}
		outcomes = append(outcomes, o)
	}
	settled, err := b.store.Settle(b.Context(), outcomes)
	if err != nil {
		b.Fatal(err)
	}
	for i, s := range settled {
		if !s.Passed {
			b.Fatalf("message %d is not settled: %+v", ids[i], s)
		}
	}
}

func (b *books) exec(sql string, args ...any) {
	b.Helper()
	if _, err := b.store.Pool().Exec(b.Context(), sql, args...); err != nil {
		b.Fatalf("%s: %v", sql, err)
	}
}

// fits checks JSON against a schema in docs/schemas.
func fits(t *testing.T, schema, text string) {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(filepath.Join("../../../docs/schemas", schema))
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if err := s.Validate(v); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// audited is what audit --json printed.
type audited struct {
	OK        bool
	Positions []struct {
		NextOffset int64 `json:"next_offset"`
		Committed  *int64
	}
	Findings []string
	notes    string
}

// audit runs the command, and expects the exit code.
func (b *books) audit(code int, args ...string) audited {
	b.Helper()
	stdout, stderr, got := forwarder(b.T, b.env, append([]string{"audit", "--json"}, args...)...)
	if got != code {
		b.Fatalf("exit %d, want %d\n%s%s", got, code, stdout, stderr)
	}
	fits(b.T, "audit.schema.json", stdout)
	a := audited{notes: stderr}
	if err := json.Unmarshal([]byte(stdout), &a); err != nil {
		b.Fatal(err)
	}
	if a.OK != (code == 0) {
		b.Errorf("exit %d and ok %v", got, a.OK)
	}
	return a
}

func (b *books) balanced(stage string, args ...string) {
	b.Helper()
	b.Log(stage)
	if a := b.audit(0, args...); len(a.Findings) > 0 {
		b.Errorf("%s: %q", stage, a.Findings)
	}
}

// table is what audit prints for people.
func (b *books) table(code int, args ...string) string {
	b.Helper()
	stdout, stderr, got := forwarder(b.T, b.env, append([]string{"audit"}, args...)...)
	if got != code || stderr != "" {
		b.Fatalf("exit %d, want %d\n%s%s", got, code, stdout, stderr)
	}
	return stdout
}

// filled has 18 messages of route a: 1–6 delivered, 7 and 8 to be sent again, 9 and 10 failed, 11–16 new, 18 unstorable
// and 20 a conflict; and a duplicate, one filtered and one skipped.
func filled(t *testing.T) *books {
	t.Helper()
	b := newBooks(t)
	b.opened()
	b.alive()
	b.read(slices.Repeat([]message.IngestResult{message.IngestStored}, 16)...)
	b.read(message.IngestDuplicate, message.IngestFiltered, message.IngestTombstone)
	b.read(message.IngestConflict, message.IngestUnstorable)
	b.settle(message.StatusDelivered, 1, 2, 3, 4, 5, 6)
	b.settle(message.StatusPending, 7, 8)
	b.settle(message.StatusFailed, 9, 10)
	return b
}

func TestAuditBalanced(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.balanced("empty")
	if got := b.table(0); got != "no messages were stored yet\n" {
		t.Errorf("of nothing it prints %q", got)
	}
	b.opened()
	b.alive()
	b.balanced("assigned")
	b.read(message.IngestStored)
	if got := b.table(0); !strings.HasPrefix(got, "the one message is accounted for\n") {
		t.Errorf("of one it prints %q", got)
	}
	b.read(slices.Repeat([]message.IngestResult{message.IngestStored}, 8)...)
	b.balanced("new")
	b.read(message.IngestDuplicate, message.IngestFiltered, message.IngestTombstone, message.IngestConflict, message.IngestUnstorable)
	b.balanced("read")
	b.settle(message.StatusPending, 1, 2, 3)
	b.balanced("sent")
	b.settle(message.StatusFailed, 1, 4)
	b.settle(message.StatusDelivered, 2, 5, 6)
	b.balanced("settled")
	b.exec("UPDATE ferry.river_job SET state = 'running', attempt = 1, attempted_at = now() WHERE state = 'available' AND kind = 'forward'")
	b.balanced("running")
	var job int64
	if err := b.store.Pool().QueryRow(t.Context(), "SELECT job_id FROM ferry.deliveries WHERE message_id = 1").Scan(&job); err != nil {
		t.Fatal(err)
	}
	if due, err := b.store.Reopen(t.Context(), 1, job, "f1"); err != nil || due.IsZero() {
		t.Fatal(due, err)
	}
	b.balanced("replayed")
	b.settle(message.StatusFailed, 1)
	b.exec("UPDATE ferry.deliveries SET dead_lettered_at = now() WHERE message_id = 4")
	b.exec("UPDATE ferry.river_job SET state = 'completed', finalized_at = now() WHERE kind = 'dead_letter' AND args -> 'message_id' = '4'")
	b.balanced("dead-lettered")
	b.exec("DELETE FROM ferry.messages WHERE id IN (2, 4)")
	b.exec("DELETE FROM ferry.deliveries WHERE message_id IN (2, 4)")
	b.exec("DELETE FROM ferry.failures WHERE message_id = 4")
	b.exec("UPDATE ferry.river_job SET state = 'completed', finalized_at = now() WHERE args -> 'ids' = '[4]'")
	// Its process died when the message was settled, and the rescue is still to come.
	b.exec("UPDATE ferry.river_job SET state = 'running', attempt = 1, attempted_at = now() WHERE args -> 'ids' = '[2]'")
	b.exec("INSERT INTO ferry.purged SELECT route, topic, topic_id, partition, 1, 1 FROM ferry.ledger")
	b.balanced("purged")
	b.balanced("since", "--since", "1h")
	b.id = message.TopicID{0x22} // the topic was created again
	b.next = 0
	b.exec("UPDATE ferry.positions SET topic_id = $1, next_offset = 0", [16]byte(b.id))
	b.read(message.IngestStored, message.IngestConflict)
	b.balanced("created again")
	b.exec("UPDATE ferry.messages SET lane = 'l' WHERE id = 7")
	b.exec("UPDATE ferry.deliveries SET job_id = NULL WHERE message_id = 7")
	b.balanced("in a lane")
}

// What others are writing is not there yet, and they do not wait for the audit, nor it for them.
func TestAuditBesideWriters(t *testing.T) {
	t.Parallel()
	b := filled(t)
	tx, err := b.store.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	for _, table := range []string{"messages", "deliveries", "failures", "ledger", "tallies", "positions", "river_job", "attempts"} {
		if _, err := tx.Exec(t.Context(), "LOCK TABLE ferry."+table+" IN EXCLUSIVE MODE"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tx.Exec(t.Context(), "UPDATE ferry.ledger SET consumed = consumed + 1, stored = stored + 1; DELETE FROM ferry.messages"); err != nil {
		t.Fatal(err)
	}
	b.balanced("beside a writer")
}

// Each kind of damage is found, and named.
func TestAuditFindsDamage(t *testing.T) {
	t.Parallel()
	const missing1 = "route a: 18 messages were stored, and 17 are there or purged"
	for name, c := range map[string]struct {
		do   string
		want []string
		only bool // nothing else is found
	}{
		"row of messages deleted": {do: "DELETE FROM ferry.messages WHERE id = 3", want: []string{
			"route a, events/0 (topic id 11110000-0000-0000-0000-000000000000): the ledger has 18 messages stored, and 17 are there or purged (rows 17, purged 0): 1 is missing",
			"route a: 1 message with a row in deliveries and none in messages: the payload is gone: 3",
		}, only: true},
		"row of deliveries deleted": {do: "DELETE FROM ferry.deliveries WHERE message_id = 12", want: []string{
			missing1 + " (delivered 6, pending 7, failed 4, purged 0): 1 is missing",
			"route a: 1 message without a row in deliveries, which nothing will send: 12",
		}, only: true},
		"message deleted whole": {do: "DELETE FROM ferry.messages WHERE id = 3; DELETE FROM ferry.deliveries WHERE message_id = 3", want: []string{
			missing1, "17 are there or purged (rows 17, purged 0): 1 is missing",
			"route a: 5 messages are or were delivered by their rows, and 6 by what forwarders settled",
		}, only: true},
		"message deleted whole, its job not": {
			do: "DELETE FROM ferry.messages WHERE id = 7; DELETE FROM ferry.deliveries WHERE message_id = 7", want: []string{
				missing1, "(rows 17, purged 0): 1 is missing", "route a: 1 live job without any message: ",
			}, only: true,
		},
		"one row of each deleted": {
			do: "DELETE FROM ferry.messages WHERE id = 3; DELETE FROM ferry.deliveries WHERE message_id = 12", want: []string{
				"none in messages: the payload is gone: 3", "which nothing will send: 12", missing1, "(rows 17, purged 0): 1 is missing",
			}, only: true,
		},
		"row of the ledger deleted": {do: "DELETE FROM ferry.ledger", want: []string{
			"route a, events/0 (topic id 11110000-0000-0000-0000-000000000000): the ledger does not know this partition, and there are 18 messages of it: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 8 more",
			"route a: 0 messages were stored, and 18 are there or purged (delivered 6, pending 8, failed 4, purged 0): 18 are too many",
			"and 2 by what was settled (2) or failed when it was read (0)",
		}, only: true},
		"ledger changed": {
			do:   "UPDATE ferry.ledger SET consumed = consumed - 2, stored = stored - 2",
			want: []string{"16 messages were stored, and 18 are there", "18 are there or purged (rows 18, purged 0): 2 are too many"}, only: true,
		},
		"ledger that does not add up": {
			do:   "ALTER TABLE ferry.ledger DROP CONSTRAINT ledger_sum_check; UPDATE ferry.ledger SET consumed = consumed + 3",
			want: []string{"24 records were consumed, and the ledger accounts for 21 (stored 18, duplicates 1, filtered 1, skipped tombstones 1)"}, only: true,
		},
		"purged twice": {
			do:   "INSERT INTO ferry.purged SELECT route, topic, topic_id, partition, 2, 0 FROM ferry.ledger",
			want: []string{"18 messages were stored, and 20 are there", "(rows 18, purged 2): 2 are too many", "8 messages are or were delivered"}, only: true,
		},
		"job deleted": {
			do:   "DELETE FROM ferry.river_job WHERE args -> 'ids' @> '13'",
			want: []string{"route a: 4 pending messages whose job is gone: 13, 14, 15, 16; a running forwarder puts this right"}, only: true,
		},
		"job completed": {
			do:   "UPDATE ferry.river_job SET state = 'completed', finalized_at = now() WHERE args -> 'ids' = '[7]'",
			want: []string{"route a: 1 pending message whose job is completed: 7"}, only: true,
		},
		"job discarded": {
			do:   "UPDATE ferry.river_job SET state = 'discarded', finalized_at = now() WHERE args -> 'ids' = '[7]'",
			want: []string{"route a: 1 pending message whose job is discarded: 7"}, only: true,
		},
		"job cancelled": {
			do:   "UPDATE ferry.river_job SET state = 'cancelled', finalized_at = now() WHERE args -> 'ids' = '[7]'",
			want: []string{"route a: 1 pending message whose job is cancelled: 7; a running forwarder makes them failed"}, only: true,
		},
		"no job": {
			do:   "UPDATE ferry.deliveries SET job_id = NULL WHERE message_id = 7",
			want: []string{"route a: 1 pending message that no job owns and that no lane has: 7"}, only: true,
		},
		"job of another": {
			do:   "UPDATE ferry.deliveries SET job_id = (SELECT job_id FROM ferry.deliveries WHERE message_id = 7) WHERE message_id = 8",
			want: []string{"route a: 1 pending message whose job is not of the route, or does not have it: 8"}, only: true,
		},
		"job in another queue": {
			do:   "UPDATE ferry.river_job SET queue = 'elsewhere' WHERE args -> 'ids' = '[7]'",
			want: []string{"does not have it: 7"}, only: true,
		},
		"job without messages": {
			do: `INSERT INTO ferry.river_job (kind, queue, args, max_attempts, id) VALUES ('forward', 'a', '{"ids": [900, 901]}', 5, 700),
				('forward', 'a', '{"ids": []}', 5, 701), ('forward', 'a', '{}', 5, 702), ('forward', 'a', '{"ids": "x"}', 5, 703), ('forward', 'a', '{"ids": ["x", 1]}', 5, 704)`,
			want: []string{"route a: 4 live jobs without any message: 700, 701, 702, 703 (ids of jobs)"}, only: true,
		},
		"failed to pending": {
			do: "UPDATE ferry.deliveries SET status = 'pending', reason = NULL, settled_at = NULL WHERE message_id = 9",
			want: []string{
				"route a: 3 messages are or were failed by their rows, and 4 by what was settled (2) or failed when it was read (2)",
				"route a: 3 messages are failed, and failures has 4 rows", "route a: 1 pending message with a row in failures: the status was changed by SQL: 9",
			}, only: true,
		},
		"failed to delivered": {
			do: "UPDATE ferry.deliveries SET status = 'delivered', reason = NULL WHERE message_id = 9",
			want: []string{
				"route a: 7 messages are or were delivered by their rows, and 6 by what forwarders settled", "3 messages are or were failed by their rows",
				"failures has 4 rows", "route a: 1 delivered message with a row in failures: the status was changed by SQL: 9",
				"route a: 1 delivered message that no request delivered: the status was changed by SQL: 9",
			}, only: true,
		},
		"pending to delivered": {
			do: "UPDATE ferry.deliveries SET status = 'delivered', settled_at = now() WHERE message_id IN (7, 11)",
			want: []string{
				"route a: 8 messages are or were delivered by their rows, and 6 by what forwarders settled",
				"route a: 2 delivered messages that no request delivered: the status was changed by SQL: 7, 11",
			}, only: true,
		},
		"delivered to failed": {
			do: "UPDATE ferry.deliveries SET status = 'failed', reason = 'rejected', dead_lettered_at = now() WHERE message_id = 1",
			want: []string{
				"5 messages are or were delivered by their rows, and 6", "5 messages are or were failed by their rows, and 4",
				"5 messages are failed, and failures has 4 rows", "route a: 1 failed message without a row in failures: the status was changed by SQL, or the row was deleted: 1",
			}, only: true,
		},
		"delivered to pending": {
			do:   "UPDATE ferry.deliveries SET status = 'pending', settled_at = NULL WHERE message_id = 1; DELETE FROM ferry.river_job WHERE args -> 'ids' @> '1'",
			want: []string{"5 messages are or were delivered by their rows, and 6", "1 pending message whose job is gone: 1"},
			only: true,
		},
		"failures lost": {
			do:   "DELETE FROM ferry.failures WHERE message_id = 9",
			want: []string{"4 messages are failed, and failures has 3 rows", "1 failed message without a row in failures: the status was changed by SQL, or the row was deleted: 9"}, only: true,
		},
		"failures of nothing": {
			do:   "INSERT INTO ferry.failures (message_id, route, reason) VALUES (900, 'a', 'rejected')",
			want: []string{"4 messages are failed, and failures has 5 rows", "route a: 1 message with a row in failures and none in deliveries: 900"}, only: true,
		},
		"dead letter lost": {
			do:   "DELETE FROM ferry.river_job WHERE kind = 'dead_letter' AND args -> 'message_id' IN ('9', '20')",
			want: []string{"route a: 2 failed messages without a dead letter, written or under way: 9, 20; replay them"}, only: true,
		},
		"dead letter of an earlier failure": {
			do:   "UPDATE ferry.deliveries SET settled_at = settled_at + interval '1 second' WHERE message_id = 9",
			want: []string{"route a: 1 failed message without a dead letter, written or under way: 9"}, only: true,
		},
		"route that is gone": {
			do: `UPDATE ferry.messages SET route = 'old'; UPDATE ferry.deliveries SET route = 'old'; UPDATE ferry.ledger SET route = 'old';
				UPDATE ferry.tallies SET route = 'old'; UPDATE ferry.failures SET route = 'old'; UPDATE ferry.river_job SET queue = 'old'`,
			want: []string{"route old: 8 pending messages, and the route file has no such route: put it back"}, only: true,
		},
		"no forwarder": {
			do:   "UPDATE ferry.forwarders SET seen_at = now() - interval '31 seconds'",
			want: []string{"route a: 8 pending messages, and no forwarder that works the route was seen for 30 s"}, only: true,
		},
		"forwarder of other routes": {
			do:   "UPDATE ferry.forwarders SET routes = '{b}'",
			want: []string{"route a: 8 pending messages, and no forwarder that works the route"}, only: true,
		},
		"expired": {
			do:   "UPDATE ferry.positions SET expired_unread = 5",
			want: []string{"group ferry, events/0: Kafka removed 5 offsets before they were read (expired_unread)"}, only: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := filled(t)
			conn, err := pgx.Connect(t.Context(), b.url)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.PgConn().Exec(t.Context(), c.do).ReadAll(); err != nil {
				t.Fatal(err)
			}
			if err := conn.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := b.audit(1).Findings
			for _, want := range c.want {
				if !slices.ContainsFunc(got, func(f string) bool { return strings.Contains(f, want) }) {
					t.Errorf("it does not find %q", want)
				}
			}
			if c.only && len(got) != len(c.want) {
				t.Errorf("it finds other things too")
			}
			if t.Failed() {
				t.Logf("found:\n%s", strings.Join(got, "\n"))
			}
		})
	}
}

func TestAuditTable(t *testing.T) {
	t.Parallel()
	b := filled(t)
	b.exec("UPDATE ferry.positions SET skipped = 1234567")
	golden(t, "audit.txt", b.table(0))
	stdout, _, _ := forwarder(t, b.env, "audit", "--json")
	golden(t, "audit.json", stdout)
	b.exec("DELETE FROM ferry.river_job WHERE args -> 'ids' @> '13'")
	b.exec("DELETE FROM ferry.messages WHERE id = 3")
	golden(t, "audit-findings.txt", b.table(1))
}

// With a time nothing is counted: the sums are compared with each other, and messages received since then with their jobs.
func TestAuditSince(t *testing.T) {
	t.Parallel()
	b := filled(t)
	b.exec("UPDATE ferry.messages SET received_at = now() - interval '3 days' WHERE id <= 7")
	b.exec("DELETE FROM ferry.river_job WHERE args -> 'ids' IN ('[7]', '[8]')")
	b.exec("DELETE FROM ferry.deliveries WHERE message_id IN (2, 12)")
	b.exec("DELETE FROM ferry.failures WHERE message_id = 9")
	for since, want := range map[string][]string{
		"1h": {
			"route a: 4 messages are failed, and failures has 3 rows: the status of some was changed by SQL, or rows were deleted",
			"route a: 1 message without a row in deliveries, which nothing will send: 12",
			"route a: 1 pending message whose job is gone: 8; a running forwarder puts this right within minutes",
			"route a: 1 failed message without a row in failures: the status was changed by SQL, or the row was deleted: 9",
		},
		"7d": {
			"route a: 4 messages are failed, and failures has 3 rows: the status of some was changed by SQL, or rows were deleted",
			"route a: 2 messages without a row in deliveries, which nothing will send: 2, 12",
			"route a: 2 pending messages whose job is gone: 7, 8; a running forwarder puts this right within minutes",
			"route a: 1 failed message without a row in failures: the status was changed by SQL, or the row was deleted: 9",
		},
	} {
		a := b.audit(1, "--since", since)
		got := slices.Sorted(slices.Values(a.Findings))
		if want := slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
			t.Errorf("since %s it finds\n%s\nwant\n%s", since, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if !strings.Contains(a.notes, "rows were not counted") {
			t.Errorf("it does not say that it counted no rows: %q", a.notes)
		}
	}
	_, stderr, code := forwarder(t, b.env, "audit", "--since", "yesterday")
	if code != 2 || !strings.Contains(stderr, `--since: "yesterday" is not a time`) || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}

func TestAuditPollOnly(t *testing.T) {
	t.Parallel()
	b := filled(t)
	b.env = append(b.env, "FERRY_POLL_ONLY=true")
	b.balanced("poll only")
	b.balanced("since", "--since", "1h")
}

func TestAuditWithoutDatabase(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := forwarder(t, append(routes(t, auditRoutes), away), "audit")
	if code != 3 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "check FERRY_DATABASE_URL") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
}
