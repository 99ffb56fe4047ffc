package kafka

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	ck "github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// Why properties are refused to a producer.
const (
	whyAcks    = "a dead letter counts as written when all in-sync replicas have it, once (enable.idempotence, acks=all); leave it out"
	whyTimeout = "how long a dead letter may take follows from the route file; leave it out"
	whyReports = "Ferry waits for the report of each dead letter; leave it out"
)

// refusedToProducers are the properties that would break a promise of the producer. What is refused to consumers is
// refused here too: both binaries may be given one FERRY_KAFKA_CONFIG.
var refusedToProducers = map[string]rule{
	"enable.idempotence":         only("true", whyAcks),
	"acks":                       acksAll,
	"request.required.acks":      acksAll,
	"enable.gapless.guarantee":   only("false", "one dead letter that can't be written would end the producer; leave it out"),
	"transactional.id":           always("dead letters are written one by one, without transactions; leave it out"),
	"message.timeout.ms":         always(whyTimeout),
	"delivery.timeout.ms":        always(whyTimeout),
	"delivery.report.only.error": only("false", whyReports),
}

func acksAll(value string) string {
	if value == "-1" {
		return ""
	}
	return only("all", whyAcks)(value)
}

// ofConsumers are properties that only consumers have, so that one FERRY_KAFKA_CONFIG does for both binaries.
var ofConsumers = append([]string{
	"max.poll.interval.ms", "coordinator.query.interval.ms", "queued.min.messages", "queued.max.messages.kbytes", "fetch.wait.max.ms",
	"fetch.queue.backoff.ms", "fetch.message.max.bytes", "max.partition.fetch.bytes", "fetch.max.bytes", "fetch.min.bytes",
	"fetch.error.backoff.ms", "check.crcs", "client.rack",
}, ofMembers...)

const (
	// messageMaxBytes is librdkafka's own limit: how large a record may be is the topic's to say.
	messageMaxBytes = 1_000_000_000
	// batchSize bounds what goes into one batch, unless it is a single record. A topic refuses batches that are larger than
	// its max.message.bytes, whichever records are in it.
	batchSize = 64 << 10
	// A topic that was made is found in refreshMs. One that is missing is waited for as long as a broker may need to hear
	// of a topic that was just made.
	refreshMs     = 5000
	propagationMs = 3000
)

// ofProducer returns the configuration without what only consumers need.
func ofProducer(cfg Config) Config {
	cfg.Properties = maps.Clone(cfg.Properties)
	maps.DeleteFunc(cfg.Properties, func(name, _ string) bool { return slices.Contains(ofConsumers, name) })
	return cfg
}

// producerMap joins the fixed properties, the defaults and those that the operator passes through.
func producerMap(cfg Config, limit time.Duration) (ck.ConfigMap, error) {
	if err := faults(cfg.Properties, refused, refusedToProducers); err != nil {
		return nil, err
	}
	m := ck.ConfigMap{
		"client.id":                          "ferry-forwarder",
		"message.max.bytes":                  strconv.Itoa(messageMaxBytes),
		"batch.size":                         strconv.Itoa(batchSize),
		"topic.metadata.refresh.interval.ms": strconv.Itoa(refreshMs),
		"topic.metadata.propagation.max.ms":  strconv.Itoa(propagationMs),
		"socket.timeout.ms":                  strconv.Itoa(socketTimeoutMs),
		"reconnect.backoff.ms":               strconv.Itoa(reconnectMs),
		"log.connection.close":               "false",
	}
	for name, value := range cfg.Properties {
		m[name] = value
	}
	maps.Copy(m, ck.ConfigMap{
		"bootstrap.servers":         strings.Join(cfg.Brokers, ","),
		"enable.idempotence":        "true",
		"acks":                      "all",
		"message.timeout.ms":        strconv.FormatInt(limit.Milliseconds(), 10),
		"allow.auto.create.topics":  "false",
		"go.delivery.report.fields": "none",
		"go.events.channel.size":    1000,
		"go.produce.channel.size":   1,
	})
	delete(m, "request.required.acks") // the same as acks
	return m, nil
}

// CheckProducer says what is wrong with the properties of a producer, without connecting to anything.
func CheckProducer(cfg Config) error {
	m, err := producerMap(ofProducer(cfg), time.Second)
	if err != nil {
		return err
	}
	offline(m)
	p, err := ck.NewProducer(&m)
	if err != nil {
		return producerSettings(err)
	}
	p.Close()
	return nil
}

// ProducerWarnings names what makes the connection less safe than it looks.
func ProducerWarnings(cfg Config) []string { return Warnings(ofProducer(cfg)) }

func producerSettings(err error) error {
	return fmt.Errorf("setting up the Kafka producer: %w; check FERRY_KAFKA_CONFIG", err)
}
