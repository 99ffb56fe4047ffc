package e2e

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

const (
	failed       = `SELECT count(*)::text FROM ferry.message_status WHERE status = 'failed'`
	deadLettered = `SELECT count(dead_lettered_at)::text FROM ferry.deliveries`
)

// deadEnv is an installation whose receiver refuses everything, with a topic for dead letters that does not exist yet.
func deadEnv(t *testing.T, c *kafkatest.Cluster) (e *env, dead string) {
	t.Helper()
	e, dead = newEnv(t, c, 2), kafkatest.Name("dead")
	e.writeRoutes(strings.Replace(fmt.Sprintf(routeFile, e.topic, e.receiver.URL()), "    job_size:", "    dead_letter: {topic: "+dead+"}\n    job_size:", 1))
	e.receiver.Always(receivertest.Status(400))
	return e, dead
}

// deadForwarder starts a forwarder that writes dead letters.
func (e *env) deadForwarder(settings ...string) *proctest.Proc {
	e.t.Helper()
	return e.forwarder(append([]string{"FERRY_KAFKA_BROKERS=" + e.brokers}, settings...)...)
}

// letters reads the dead letters by the offsets of their records, and checks that those of one failure are equal.
func (e *env) letters(topic string) map[string]kafkatest.Record {
	e.t.Helper()
	by := map[string]kafkatest.Record{}
	for _, r := range e.kafka.Records(e.t, topic) {
		r.Timestamp, r.Partition = time.Time{}, 0 // when and where it was written
		p, _ := r.Header("ferry-source-partition")
		o, _ := r.Header("ferry-source-offset")
		id := p + "/" + o
		if first, twice := by[id]; twice && !reflect.DeepEqual(first, r) {
			e.t.Errorf("two dead letters of one failure differ:\n%+v\n%+v", first, r)
		}
		by[id] = r
	}
	return by
}

// Dead letters wait for their topic, the forwarder being ready and saying so, and come by themselves when it is made: byte
// for byte, but what is larger than the topic takes without its value.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	c := kafkatest.Real(t)
	e, dead := deadEnv(t, c)
	headers := []message.Header{
		{Name: "a", Value: []byte("1")}, {Name: "a", Value: []byte("2")}, {Name: "null"}, {Name: "empty", Value: []byte{}}, {Name: "bin\xff", Value: []byte("\x00\xff")},
	}
	large := append([]byte(`{"id":"large","x":"`), append(bytes.Repeat([]byte("x"), 300_000), `"}`...)...)
	records := []kafkatest.Record{
		{Key: []byte("k"), Value: []byte(`{"id":"a","n":1}`), Headers: headers},
		{Key: []byte("k"), Value: []byte(`{"id":"a","n":2}`)}, // a conflict
		{Value: []byte("\x00\xff{"), Headers: headers},
		{Key: []byte("\x00\xff"), Value: []byte{}},
		{Key: []byte{}, Value: large, Headers: headers},
	}
	c.Produce(t, e.topic, records...)
	e.ingester()
	fw := e.deadForwarder()
	e.is(patience, "5", failed)
	ready(t, fw, 200, "dead letters wait: writing to topic "+dead+": there is no such topic; create it")
	fw.WaitLog("a dead letter is not written yet, trying again", patience)
	if _, body := get(admin(fw) + "/metrics"); !strings.Contains(body, `ferry_dead_letters_total{result="no_topic",route="events"}`) || !strings.Contains(body, `ferry_dead_letters_total{result="delivered",route="events"} 0`) {
		t.Error("the metrics do not tell")
	}
	e.none("dead letters noted", deadLettered)
	c.CreateTopic(t, dead, 3, map[string]string{"max.message.bytes": "100000"})
	e.is(patience, "5", deadLettered)
	ready(t, fw, 200, `"routes":{"ok":true,"why":""}`)
	got := e.letters(dead)
	if len(got) != 5 || len(c.Records(t, dead)) != 5 {
		t.Errorf("%d dead letters of %d messages", len(c.Records(t, dead)), len(got))
	}
	for i, want := range records {
		r := got[fmt.Sprintf("0/%d", i)]
		if i == 4 {
			if omitted, _ := r.Header("ferry-value-omitted"); omitted != fmt.Sprintf("%d bytes, more than the topic takes", len(large)) || r.Value != nil {
				t.Errorf("the large one: %q", omitted)
			}
			r.Value = want.Value
		}
		if !reflect.DeepEqual([]any{r.Key, r.Value}, []any{want.Key, want.Value}) || len(r.Headers) < len(want.Headers) ||
			len(want.Headers) > 0 && !reflect.DeepEqual(r.Headers[:len(want.Headers)], want.Headers) {
			t.Errorf("%d: %.300q, want %.300q", i, fmt.Sprint(r), fmt.Sprint(want))
		}
		story := map[string]string{}
		for _, h := range r.Headers[len(want.Headers):] {
			story[h.Name] = string(h.Value)
		}
		reason := map[int]string{1: "conflict"}[i]
		if reason == "" {
			reason = "rejected"
		}
		if story["ferry-route"] != "events" || story["ferry-source-topic"] != e.topic || story["ferry-reason"] != reason ||
			(story["ferry-http-status"] == "400") != (reason == "rejected") {
			t.Errorf("%d: %v", i, story)
		}
	}
	if code, took := fw.Term(patience); code != 0 || took > 10*time.Second {
		t.Errorf("the forwarder ended with %d after %v", code, took)
	}
}

// Kafka is away while messages fail, and the forwarder stays ready. Then Kafka is silent, and the forwarder is killed with
// dead letters on their way: each comes once or more, none never.
func TestDeadLettersWithoutKafka(t *testing.T) {
	t.Parallel()
	c, broker := ownBroker(t)
	e, dead := deadEnv(t, c)
	c.CreateTopic(t, dead, 3, nil)
	e.produce(0, 60, 2)
	in := e.ingester()
	e.stored(60)
	in.Kill()
	fw := e.deadForwarder()
	e.is(patience, "true", `SELECT (count(dead_lettered_at) > 0)::text FROM ferry.deliveries`)
	e.is(patience, "60", deadLettered)
	broker.Stop()
	e.save(1000, values(40)...)
	e.is(patience, "100", failed)
	ready(t, fw, 200, "dead letters wait: writing to topic "+dead+": Kafka did not take it in time")
	other := e.deadForwarder()
	other.WaitLog(`"message":"working"`, patience)
	if code, took := other.Term(patience); code != 0 || took > 10*time.Second {
		t.Errorf("without Kafka the forwarder ended with %d after %v", code, took)
	}
	outlast(30 * time.Second)
	if err := broker.Start(); err != nil {
		t.Fatal(err)
	}
	e.is(rescuePatience, "100", deadLettered)
	ready(t, fw, 200, `"routes":{"ok":true,"why":""}`)

	if err := broker.Freeze(); err != nil {
		t.Fatal(err)
	}
	e.save(1040, values(40)...)
	e.is(patience, "140", failed)
	e.is(patience, "true", `SELECT (count(*) > 0)::text FROM ferry.river_job WHERE kind = 'dead_letter' AND state = 'running'`)
	fw.Kill()
	e.is(patience, "100", deadLettered)
	if err := broker.Thaw(); err != nil {
		t.Fatal(err)
	}
	e.deadForwarder()
	e.is(rescuePatience, "140", deadLettered)
	if n := len(e.letters(dead)); n != 140 {
		t.Errorf("dead letters of %d messages, want 140", n)
	}
	t.Logf("%d dead letters of 140 messages", len(c.Records(t, dead)))
}

// Kafka has the dead letters, and the forwarder is killed before the database knows: they come again, equal to the first.
func TestKilledBeforeTheDeadLetterIsNoted(t *testing.T) {
	t.Parallel()
	c := kafkatest.Real(t)
	e, dead := deadEnv(t, c)
	e.save(0, values(30)...)
	fw := e.deadForwarder()
	e.is(patience, "30", failed)
	release := e.lock(`SELECT message_id FROM ferry.deliveries FOR UPDATE`)
	c.CreateTopic(t, dead, 1, nil)
	t.Cleanup(func() { c.DeleteTopic(t, dead) })
	kafkatest.Wait(t, "dead letters in Kafka", func() bool { return c.Ends(t, dead)[message.TopicPartition{Topic: dead}] > 0 })
	e.blocked()
	fw.Kill()
	release()
	written := len(c.Records(t, dead))
	e.none("dead letters noted", deadLettered)
	e.deadForwarder()
	e.is(rescuePatience, "30", deadLettered)
	if n := len(e.letters(dead)); n != 30 {
		t.Errorf("dead letters of %d messages, want 30", n)
	}
	if all := len(c.Records(t, dead)); written == 0 || all < 30+written {
		t.Errorf("%d dead letters, %d of them before the forwarder was killed", all, written)
	}
}
