package kafka

import (
	"fmt"
	"strconv"
	"strings"
)

// rule says why a value of a property is refused and what to do instead; an empty text takes it.
type rule func(value string) string

// Why properties are refused.
const (
	whyCommits   = "Ferry commits only what it has stored; leave it out"
	whyPositions = "Ferry keeps positions in its database; leave it out"
	whyVersions  = "brokers are asked what they can do, else headers and transactions are not read as they are; leave it out"
	whyMock      = "makes up a cluster in the process and reads nothing from Kafka; leave it out"
	whyNotYours  = "is not for operators; leave it out"
)

// refused are the properties that would break a promise. Some have two names in librdkafka; and each that belongs to
// topics is also known with "topic." before it, see refusal.
var refused = map[string]rule{
	// What is committed, and where reading starts.
	"enable.auto.commit":            always(whyCommits),
	"auto.commit.enable":            always(whyCommits),
	"auto.commit.interval.ms":       always(whyCommits),
	"enable.auto.offset.store":      always(whyCommits),
	"offset.store.method":           always(whyPositions),
	"offset.store.path":             always(whyPositions),
	"offset.store.sync.interval.ms": always(whyPositions),
	"auto.offset.reset":             always("Ferry reads a new topic from its first record and decides itself when an offset is gone; leave it out"),

	// What is read.
	"isolation.level":                    always("Ferry stores only committed records (read_committed); leave it out"),
	"enable.partition.eof":               always("Ferry needs it to tell the lag; leave it out"),
	"topic.blacklist":                    always("name the topics in the route file instead"),
	"allow.auto.create.topics":           always("reading must not create topics; create them with the right number of partitions instead"),
	"topic.metadata.refresh.interval.ms": between(1, 60_000, "new topics and partitions are found by it"),
	"api.version.request":                only("true", whyVersions),
	"api.version.fallback.ms":            always(whyVersions),
	"broker.version.fallback":            always(whyVersions),
	"plugin.library.paths":               always("other code in the consumer could change what is read and committed; leave it out"),
	"test.mock.num.brokers":              always(whyMock),
	"test.mock.broker.rtt":               always(whyMock),

	"group.protocol.type": only("consumer", "the group would not be one of consumers; leave it out"),
	// With 0, a connection whose requests get no answer is kept for ever.
	"socket.max.fails": between(1, 1_000_000, "a connection that does not answer has to be made anew"),

	// What has a setting of its own.
	"bootstrap.servers":    always("set FERRY_KAFKA_BROKERS instead"),
	"metadata.broker.list": always("set FERRY_KAFKA_BROKERS instead"),
	"group.id":             always("set FERRY_KAFKA_GROUP instead"),
	"log.queue":            always("Ferry writes Kafka's log lines into its own log; set FERRY_LOG_LEVEL instead"),

	"enabled_events":              always(whyNotYours),
	"internal.termination.signal": always(whyNotYours),

	"sasl.oauthbearer.metadata.authentication.type": func(value string) string {
		if value == "aws_iam" {
			return "librdkafka knows aws_iam by name only; use sasl.oauthbearer.method=oidc with a token endpoint"
		}
		return ""
	},
}

func always(why string) rule { return func(string) string { return why } }

func only(good, why string) rule {
	return func(value string) string {
		if strings.EqualFold(value, good) {
			return ""
		}
		return why
	}
}

// between leaves values that are no numbers to librdkafka, which refuses them.
func between(low, high int, why string) rule {
	return func(value string) string {
		if n, err := strconv.Atoi(value); err != nil || low <= n && n <= high {
			return ""
		}
		return fmt.Sprintf("%s; set %d..%d", why, low, high)
	}
}

// refusal says why a property is refused by one of the tables; empty if it is not.
func refusal(name, value string, tables []map[string]rule) string {
	if strings.HasPrefix(name, "go.") { // of confluent-kafka-go
		return whyNotYours
	}
	for _, table := range tables {
		if r, ok := table[name]; ok {
			return r(value)
		}
		// librdkafka takes topic.auto.offset.reset for auto.offset.reset.
		if rest, ok := strings.CutPrefix(name, "topic."); ok {
			if r, ok := table[rest]; ok {
				return r(value)
			}
		}
	}
	return ""
}

// aliases are second names. Given both, it would be left to chance which of the values counts.
var aliases = map[string]string{ //nolint:gosec // names of properties
	"sasl.mechanism":            "sasl.mechanisms",
	"max.partition.fetch.bytes": "fetch.message.max.bytes",
	"max.in.flight":             "max.in.flight.requests.per.connection",

	"sasl.oauthbearer.client.credentials.client.id":     "sasl.oauthbearer.client.id",
	"sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}

// get returns the value of a property under either of its names.
func get(properties map[string]string, name string) string {
	if v, ok := properties[name]; ok {
		return v
	}
	for alias, of := range aliases {
		if of == name {
			if v, ok := properties[alias]; ok {
				return v
			}
		}
	}
	return ""
}
