package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/kafka"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

func producer(t *testing.T, addr string, limit time.Duration, properties map[string]string) *kafka.Producer {
	t.Helper()
	p, err := kafka.NewProducer(kafka.Config{Brokers: []string{addr}, Properties: properties}, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

func to(topic string, value []byte) *message.Record {
	return &message.Record{Position: message.Position{TopicPartition: message.TopicPartition{Topic: topic}}, Value: value}
}

// Key, value and headers arrive as they are: null and empty ones, repeated names, bytes that are no text.
func TestProduceIsByteEqual(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic := c.Topic(t, "dead", 1)
		p := producer(t, c.Addr, 10*time.Second, nil)
		noise := bytes.Repeat([]byte("\x00\xff\x01{"), 200_000)
		records := []kafkatest.Record{
			{},
			{Key: []byte{}, Value: []byte{}},
			{Key: []byte("\x00\xff"), Value: []byte("\xed\xa0\x80")},
			{Value: noise},
			{Value: []byte("h"), Headers: []message.Header{
				{Name: "a", Value: []byte("1")},
				{Name: "a", Value: []byte("2")},
				{Name: "null"},
				{Name: "empty", Value: []byte{}},
				{Name: "bin\xff", Value: []byte("\x00\xff")},
				{Name: "", Value: []byte("<&>\u2028")},
				{Name: "a", Value: []byte("1")},
			}},
		}
		for _, r := range records {
			sent := to(topic, r.Value)
			sent.Key, sent.Headers = r.Key, r.Headers
			if err := p.Produce(t.Context(), sent); err != nil {
				t.Fatal(err)
			}
		}
		got := c.Records(t, topic)
		for i, want := range records {
			if age := time.Since(got[i].Timestamp); age < -time.Minute || age > time.Minute {
				t.Errorf("record %d: timestamp %v", i, got[i].Timestamp)
			}
			got[i].Timestamp = want.Timestamp
			if !reflect.DeepEqual(got[i], want) {
				t.Errorf("record %d: %.200q, want %.200q", i, fmt.Sprintf("%#v", got[i]), fmt.Sprintf("%#v", want))
			}
		}
	})
}

// A topic that is missing is told as that, nothing makes it, and once it is there records arrive.
func TestProduceWithoutTopic(t *testing.T) {
	t.Parallel()
	c := kafkatest.Real(t)
	topic := kafkatest.Name("dead")
	p := producer(t, c.Addr, 10*time.Second, nil)
	for range 2 {
		var e *kafka.ProduceError
		if err := p.Produce(t.Context(), to(topic, nil)); !errors.As(err, &e) || !e.NoTopic() || e.TooLarge() || !strings.Contains(err.Error(), topic+": there is no such topic; create it") {
			t.Fatal(err)
		}
	}
	c.CreateTopic(t, topic, 2, nil)
	proctest.Eventually(t, 15*time.Second, func() error { return p.Produce(t.Context(), to(topic, []byte("x"))) })
	if n := len(c.Records(t, topic)); n != 1 {
		t.Errorf("%d records", n)
	}
}

// A topic that is deleted and made again takes records again.
func TestProduceToATopicThatIsMadeAnew(t *testing.T) {
	t.Parallel()
	c := kafkatest.Real(t)
	topic := c.Topic(t, "dead", 1)
	p := producer(t, c.Addr, 10*time.Second, map[string]string{"topic.metadata.propagation.max.ms": "500"})
	for range 3 {
		for range 5 {
			if err := p.Produce(t.Context(), to(topic, []byte("x"))); err != nil {
				t.Fatal(err)
			}
		}
		c.DeleteTopic(t, topic)
		proctest.Eventually(t, 30*time.Second, func() error {
			if err := p.Produce(t.Context(), to(topic, []byte("gone"))); err == nil {
				return errStillThere
			}
			return nil
		})
		c.CreateTopic(t, topic, 1, nil)
		proctest.Eventually(t, 30*time.Second, func() error { return p.Produce(t.Context(), to(topic, []byte("again"))) })
	}
}

var errStillThere = errors.New("the topic is still there")

// What a topic does not take is told as too large, and what it takes alone is taken, also when many come at once.
func TestProduceTooLarge(t *testing.T) {
	t.Parallel()
	c := kafkatest.Real(t)
	topic := kafkatest.Name("dead")
	c.CreateTopic(t, topic, 1, map[string]string{"max.message.bytes": "2000"})
	p := producer(t, c.Addr, 10*time.Second, map[string]string{"linger.ms": "50"})
	var sending sync.WaitGroup
	for i := range 40 {
		sending.Go(func() {
			if err := p.Produce(t.Context(), to(topic, bytes.Repeat([]byte{'x'}, 500+i))); err != nil {
				t.Error(err)
			}
			var e *kafka.ProduceError
			if err := p.Produce(t.Context(), to(topic, make([]byte, 3000+100_000*(i%2)))); !errors.As(err, &e) || !e.TooLarge() || e.NoTopic() {
				t.Error(err)
			}
		})
	}
	sending.Wait()
	if n := len(c.Records(t, topic)); n != 40 {
		t.Errorf("%d records", n)
	}
}

// A producer that librdkafka gives up is replaced.
func TestProduceAfterAFatalError(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic := c.Topic(t, "dead", 1)
		p := producer(t, c.Addr, 10*time.Second, nil)
		for range 3 {
			if err := p.Produce(t.Context(), to(topic, nil)); err != nil {
				t.Fatal(err)
			}
			p.Break()
			proctest.Eventually(t, 10*time.Second, func() error { return p.Produce(t.Context(), to(topic, []byte("after"))) })
		}
	})
}

// A broker that makes topics by itself does not make one for a record; while it is away a record has its time, and an end
// then takes no longer than it may. When it is back, records arrive.
func TestProduceToABrokerThatComesAndGoes(t *testing.T) {
	t.Parallel()
	broker, err := kafkatest.NewBroker(t.TempDir(), map[string]string{"auto.create.topics.enable": "true"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Stop)
	c := kafkatest.At(t, broker.Addr)
	p := producer(t, c.Addr, 2*time.Second, map[string]string{"topic.metadata.propagation.max.ms": "500"})
	var e *kafka.ProduceError
	if err := p.Produce(t.Context(), to("never-made", nil)); !errors.As(err, &e) || !e.NoTopic() {
		t.Fatal(err)
	}
	if err := p.Produce(t.Context(), to("never-made", nil)); !errors.As(err, &e) || !e.NoTopic() {
		t.Fatal(err)
	}
	topic := c.Topic(t, "dead", 1)
	proctest.Eventually(t, 10*time.Second, func() error { return p.Produce(t.Context(), to(topic, []byte("before"))) })
	broker.Stop()
	other, err := kafka.NewProducer(kafka.Config{Brokers: []string{c.Addr}}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- other.Produce(t.Context(), to(topic, nil)) }()
	begin := time.Now()
	if err := p.Produce(t.Context(), to(topic, []byte("away"))); !errors.As(err, &e) || e.NoTopic() || e.TooLarge() ||
		!strings.Contains(err.Error(), "Kafka did not take it in time: ") || time.Since(begin) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := other.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := <-waiting; err == nil {
		t.Error("a record went out without a broker")
	}
	if err := other.Produce(t.Context(), to(topic, nil)); err == nil {
		t.Error("a closed producer takes a record")
	}
	short, done := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("the cause"))
	defer done()
	if err := p.Produce(short, to(topic, nil)); err == nil || !strings.Contains(err.Error(), "the cause") {
		t.Error(err)
	}
	if err := broker.Start(); err != nil {
		t.Fatal(err)
	}
	proctest.Eventually(t, 20*time.Second, func() error { return p.Produce(t.Context(), to(topic, []byte("after"))) })
}

func TestWhatAProducerTakes(t *testing.T) {
	t.Parallel()
	check := func(properties map[string]string) error {
		return kafka.CheckProducer(kafka.Config{Brokers: []string{"x:1"}, Properties: properties})
	}
	for _, properties := range []map[string]string{
		nil,
		props("group.protocol", "consumer", "session.timeout.ms", "6000", "group.instance.id", "a", "fetch.max.bytes", "2000000"),
		props("acks", "all", "enable.idempotence", "true"), props("request.required.acks", "-1"), props("acks", "-1"),
		props("compression.type", "zstd", "linger.ms", "20", "batch.size", "100000", "message.max.bytes", "2000000"),
		props("security.protocol", "sasl_ssl", "sasl.mechanism", "PLAIN", "sasl.username", "u", "sasl.password", "p"),
	} {
		if err := check(properties); err != nil {
			t.Errorf("%v: %v", properties, err)
		}
	}
	for _, refused := range [][3]string{
		{"acks", "1", "acks: a dead letter counts as written when all in-sync replicas"},
		{"topic.acks", "0", "acks: a dead letter"},
		{"request.required.acks", "1", "a dead letter counts"},
		{"enable.idempotence", "false", "a dead letter counts"},
		{"transactional.id", "x", "without transactions"},
		{"message.timeout.ms", "1", "route file"},
		{"delivery.timeout.ms", "1", "route file"},
		{"delivery.report.only.error", "true", "waits for the report"},
		{"enable.gapless.guarantee", "true", "end the producer"},
		{"enable.auto.commit", "true", "leave it out"},
		{"bootstrap.servers", "x", "FERRY_KAFKA_BROKERS"},
		{"allow.auto.create.topics", "true", "create them"},
		{"max.in.flight", "6", "setting up the Kafka producer"},
		{"retries", "0", "setting up the Kafka producer"},
		{"no.such.property", "1", "no.such.property"},
		{"security.protocol", "sasl_ssl", "Kerberos"},
	} {
		if err := check(props(refused[0], refused[1])); err == nil || !strings.Contains(err.Error(), refused[2]) {
			t.Errorf("%s=%s: %v", refused[0], refused[1], err)
		}
	}
	if w := kafka.ProducerWarnings(kafka.Config{Properties: props("group.protocol", "consumer", "session.timeout.ms", "1", "ssl.ca.location", "probe")}); len(w) != 1 {
		t.Errorf("%q", w)
	}
}
