package kafka

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	ck "github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// PropertyError says what is wrong with a property. It never holds the property's value.
type PropertyError struct {
	Property string
	Reason   string
}

// Error names the property, what is wrong and what to do.
func (e *PropertyError) Error() string { return "Kafka property " + e.Property + ": " + e.Reason }

// Properties reads librdkafka properties: k=v,k=v, where \, is a comma inside a value, or, when there is no = in the
// text, the path of a file with one k=v a line (empty lines and lines that begin with # are skipped).
func Properties(text string) (map[string]string, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return map[string]string{}, nil
	}
	parts := splitCommas(text)
	if !strings.Contains(text, "=") {
		b, err := os.ReadFile(text)
		if err != nil {
			return nil, fmt.Errorf("reading Kafka properties: %w; give k=v,k=v or the path of a file", err)
		}
		parts = nil
		for line := range strings.Lines(string(b)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				parts = append(parts, line)
			}
		}
	}
	properties := make(map[string]string, len(parts))
	var errs []error
	for i, part := range parts {
		name, value, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		_, twice := properties[name]
		switch {
		case !ok || name == "":
			// Not shown: it may be the rest of a password with a comma.
			errs = append(errs, fmt.Errorf("Kafka property number %d is not of the form name=value; write \\, for a comma inside a value", i+1)) //nolint:staticcheck // a name
		case twice:
			errs = append(errs, &PropertyError{name, "is set twice; leave one"})
		default:
			properties[name] = strings.TrimSpace(value)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return properties, nil
}

// splitCommas splits at commas that no backslash precedes; empty parts (a trailing comma) are left out.
func splitCommas(text string) []string {
	var parts []string
	var part strings.Builder
	flush := func() {
		if strings.TrimSpace(part.String()) != "" {
			parts = append(parts, part.String())
		}
		part.Reset()
	}
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && text[i+1] == ',':
			part.WriteByte(',')
			i++
		case text[i] == ',':
			flush()
		default:
			part.WriteByte(text[i])
		}
	}
	flush()
	return parts
}

// Prefetch: what librdkafka reads ahead is bounded in bytes, whatever waits in Kafka. A record that is larger than any
// of these bounds still comes, alone.
const (
	queuedKbytes      = 8 << 10 // in librdkafka's queue, in KiB
	fetchBytes        = 4 << 20 // of one response
	partitionBytes    = 1 << 20 // of one partition in a response
	receiveBytes      = 128 << 20
	metadataRefreshMs = 10_000 // a topic or partition that is new is found in this time
)

const (
	// socketTimeoutMs bounds a request that has no limit of its own. A commit that the coordinator does not answer
	// holds up all that is asked of it after, since brokers answer a connection's requests in their order: heartbeats,
	// and where newly assigned partitions start. When the limit is over, librdkafka makes the connection anew. Measured
	// with a commit that is never answered: by its default of 60 s, all partitions were lost to the session timeout of
	// 45 s; with 10 s, the next request was answered after 10 to 11 s and nothing was lost. Requests that may wait
	// longer (joining a group, fetching) have limits of their own.
	socketTimeoutMs = 10_000
	// reconnectMs is the first time between two tries to connect. When no broker can be reached, librdkafka begins its
	// search anew after each round, and its growing backoff with it: by its default of 100 ms that is 20 TLS handshakes
	// a second for as long as a certificate is wrong.
	reconnectMs = 500
)

// leaveOut are the properties that librdkafka refuses under group.protocol=consumer, where the brokers decide them.
var leaveOut = []string{"partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms", "group.protocol.type"}

// leftOut returns those of the given properties that are left out, in the order of leaveOut.
func leftOut(properties map[string]string) []string {
	if !strings.EqualFold(properties["group.protocol"], "consumer") {
		return nil
	}
	var names []string
	for _, name := range leaveOut {
		if _, ok := properties[name]; ok {
			names = append(names, name)
		}
	}
	return names
}

// configMap joins the fixed properties, the defaults and those that the operator passes through.
func configMap(cfg Config) (ck.ConfigMap, error) {
	if err := faults(cfg.Properties, refused); err != nil {
		return nil, err
	}
	m := ck.ConfigMap{
		"client.id":                          "ferry-ingester",
		"partition.assignment.strategy":      "cooperative-sticky",
		"queued.max.messages.kbytes":         strconv.Itoa(queuedKbytes),
		"fetch.max.bytes":                    strconv.Itoa(fetchBytes),
		"max.partition.fetch.bytes":          strconv.Itoa(partitionBytes),
		"receive.message.max.bytes":          strconv.Itoa(receiveBytes),
		"topic.metadata.refresh.interval.ms": strconv.Itoa(metadataRefreshMs),
		"socket.timeout.ms":                  strconv.Itoa(socketTimeoutMs),
		"reconnect.backoff.ms":               strconv.Itoa(reconnectMs),
		"fetch.wait.max.ms":                  "100",
		"log.connection.close":               "false", // brokers close idle connections: no news
	}
	if _, ok := cfg.Properties["fetch.message.max.bytes"]; ok { // the same under its older name
		delete(m, "max.partition.fetch.bytes")
	}
	for name, value := range cfg.Properties {
		m[name] = value
	}
	if strings.EqualFold(cfg.Properties["group.protocol"], "consumer") {
		for _, name := range leaveOut {
			delete(m, name)
		}
	}
	maps.Copy(m, ck.ConfigMap{
		"bootstrap.servers":        strings.Join(cfg.Brokers, ","),
		"group.id":                 cfg.Group,
		"enable.auto.commit":       "false",
		"enable.auto.offset.store": "false",
		"auto.offset.reset":        "error",
		"isolation.level":          "read_committed",
		"enable.partition.eof":     "true",
		"allow.auto.create.topics": "false",
	})
	return m, nil
}

// faults says what Ferry has against the properties, by the tables of what it refuses; all of it at once.
func faults(properties map[string]string, tables ...map[string]rule) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if why := refusal(name, properties[name], tables); why != "" {
			errs = append(errs, &PropertyError{name, why})
		}
		if other, ok := aliases[name]; ok {
			if _, both := properties[other]; both {
				errs = append(errs, &PropertyError{name, "is another name of " + other + ", which is set too; leave one"})
			}
		}
	}
	if fault := securityOf(properties).fault(); fault != nil {
		errs = append(errs, fault)
	}
	return errors.Join(append(errs, fileFaults(properties)...)...)
}

// tokenEndpoint is asked for a token as soon as there is a consumer.
const tokenEndpoint = "sasl.oauthbearer.token.endpoint.url" //nolint:gosec // a property's name

// Check says what is wrong with the properties, without connecting to anything.
func Check(cfg Config) error {
	m, err := configMap(cfg)
	if err != nil {
		return err
	}
	offline(m)
	c, err := ck.NewConsumer(&m)
	if err != nil {
		return settingsError(err)
	}
	if err := c.Close(); err != nil {
		return fmt.Errorf("closing a consumer that checked Kafka properties: %w", err)
	}
	return nil
}

// offline has nothing connected to, and nothing logged.
func offline(m ck.ConfigMap) {
	delete(m, "bootstrap.servers")
	if _, ok := m[tokenEndpoint]; ok {
		m[tokenEndpoint] = "http://127.0.0.1:1" // refused at once
	}
	delete(m, "debug")   // it would write to stderr
	m["log_level"] = "0" // and warn that there are no brokers
}

func settingsError(err error) error {
	return fmt.Errorf("setting up the Kafka consumer: %w; check FERRY_KAFKA_CONFIG", err)
}
