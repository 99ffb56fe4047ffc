package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// Whatever a record holds, it goes out byte for byte, and the records beside it are not held up.
func TestHostileRecordsGoOutAsTheyCame(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		e := newEnv(t, c, 1)
		if c.Fake == nil {
			e.topic = kafkatest.Name("hostile")
			c.CreateTopic(t, e.topic, 1, map[string]string{"max.message.bytes": "10000000"})
			t.Cleanup(func() { c.DeleteTopic(t, e.topic) })
		}
		e.writeRoutes(strings.Replace(fmt.Sprintf(routeFile, e.topic, e.receiver.URL()), "    job_size: 20\n",
			"    job_size: 20\n    tombstones: forward\n    filter: 'true'\n", 1))
		hostile := []kafkatest.Record{
			{Value: []byte(`{"a":"x\u0000y"}`)},
			{Value: []byte("\x00")},
			{Value: []byte("\xff\xfe not UTF-8")},
			{Value: []byte(`{"id":"\ud800"}`)},
			{Value: []byte(`{"id":12345678901234567890,"n":9007199254740993,"x":1.10,"y":1e2,"html":"<&>"}`)},
			{Value: bytes.Repeat([]byte("x"), 5<<20)},
			{Value: []byte(strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000))},
			{Value: []byte(`{"id":"` + strings.Repeat("k", 20_000) + `"}`)},
			{Value: []byte(`{"id":"a"} {"id":"b"}`)},
			{Value: []byte{0, 0, 0, 0, 7, 'x'}},
			{Value: []byte("")},
			{Value: nil},
			{Key: []byte(""), Value: []byte(`{"id":"emptykey"}`)},
			{Key: []byte("\xff\x00"), Value: []byte(`{"id":"oddkey"}`), Timestamp: time.UnixMilli(-1)},
			{
				Value: []byte(`{"id":"epoch"}`), Timestamp: time.UnixMilli(1),
				Headers: []message.Header{{Name: "h", Value: []byte{2}}, {Name: "h", Value: nil}, {Name: "", Value: []byte("\xff")}},
			},
		}
		var all []kafkatest.Record
		for i, h := range hostile {
			all = append(all, kafkatest.Value(fmt.Sprintf(`{"id":"before%d"}`, i)), h, kafkatest.Value(fmt.Sprintf(`{"id":"after%d"}`, i)))
		}
		c.Produce(t, e.topic, all...)
		e.ingester()
		e.forwarder()
		e.is(patience, fmt.Sprint(len(all)), delivered)
		got := map[string]int{}
		for _, r := range e.receiver.Requests() {
			got[string(r.Body)]++
		}
		for i, r := range all {
			if got[string(r.Value)] == 0 {
				t.Errorf("record %d, %.40q…, was not received as it came", i, r.Value)
			}
		}
		if n, _ := e.ask(`SELECT count(*)::text FROM ferry.messages WHERE produced_at < '1970-01-01'`); n != "0" {
			t.Errorf("%s messages from before 1970", n)
		}
		if n, _ := e.ask(`SELECT count(*)::text FROM ferry.messages WHERE payload IS NULL`); n != "1" {
			t.Errorf("%s messages without a payload, want the tombstone alone", n)
		}
	})
}

// A record that the database refuses is kept as failed, with its place; the 99 beside it are delivered.
func TestOneBadRow(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	if _, err := e.pool.Exec(t.Context(), `ALTER TABLE ferry.messages ADD CONSTRAINT refused CHECK (payload IS NULL OR position('\x626164726f77'::bytea IN payload) = 0)`); err != nil {
		t.Fatal(err)
	}
	var records []kafkatest.Record
	for i := range 100 {
		text := fmt.Sprintf(`{"id":"m%d"}`, i)
		if i == 37 {
			text = `{"id":"m37","x":"badrow"}`
		}
		records = append(records, kafkatest.Value(text))
	}
	e.kafka.Produce(t, e.topic, records...)
	e.ingester()
	e.forwarder()
	e.is(patience, "99", delivered)
	e.is(patience, e.topic+" 0 37 unstorable", `SELECT topic || ' ' || partition || ' ' || "offset" || ' ' || reason FROM ferry.message_status WHERE status = 'failed'`)
	e.is(patience, "100 100 1", `SELECT consumed || ' ' || stored || ' ' || unstorable FROM ferry.ledger`)
}

// Number 3 of 10 always gets 400: it fails alone, at once, and the others do not wait.
func TestOneBadRecord(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	e.receiver.On("m3", receivertest.Status(400))
	e.produce(0, 10, 1)
	e.ingester()
	e.forwarder()
	e.is(patience, "9", delivered)
	e.is(patience, "rejected 1 400", `SELECT reason || ' ' || attempts || ' ' || http_status FROM ferry.message_status WHERE status = 'failed'`)
	if got, _ := e.ask(`SELECT (max(settled_at) - min(received_at) < interval '5 s')::text FROM ferry.message_status`); got != "true" {
		t.Error("it took 5 s or more")
	}
	if n := e.receiver.CountByKey()["m3"]; n != 1 {
		t.Errorf("the rejected one was sent %d times", n)
	}
}

// A server that asks to wait is not asked again before, and no attempt is burnt.
func TestAskedToWait(t *testing.T) {
	t.Parallel()
	e := newEnv(t, kafkatest.Fake(t), 1)
	e.receiver.On("m0", receivertest.Status(429).With("Retry-After", "3"), receivertest.Status(200))
	e.receiver.On("m1", receivertest.Status(503).With("Retry-After", "3"), receivertest.Status(200))
	e.save(0, values(2)...)
	e.forwarder()
	e.is(patience, "2", delivered)
	for key, requests := range e.receiver.ByKey() {
		if gap := requests[1].At.Sub(requests[0].At); gap < 3*time.Second {
			t.Errorf("%s was sent again after %v", key, gap)
		}
	}
	e.is(patience, "1 2", `SELECT max(attempts) || ' ' || max(requests) FROM ferry.deliveries`)
}
