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

// refused are the properties that would break a promise, with what to do instead. Some have two names in librdkafka.
var refused = map[string]string{
	"enable.auto.commit":       "Ferry commits only what it has stored; leave it out",
	"auto.commit.enable":       "Ferry commits only what it has stored; leave it out",
	"auto.commit.interval.ms":  "Ferry commits only what it has stored; leave it out",
	"enable.auto.offset.store": "Ferry commits only what it has stored; leave it out",
	"offset.store.method":      "Ferry keeps positions in its database; leave it out",
	"offset.store.path":        "Ferry keeps positions in its database; leave it out",
	"auto.offset.reset":        "Ferry reads a new topic from its first record and decides itself when an offset is gone; leave it out",
	"isolation.level":          "Ferry stores only committed records (read_committed); leave it out",
	"enable.partition.eof":     "Ferry needs it to tell the lag; leave it out",
	"bootstrap.servers":        "set FERRY_KAFKA_BROKERS instead",
	"metadata.broker.list":     "set FERRY_KAFKA_BROKERS instead",
	"group.id":                 "set FERRY_KAFKA_GROUP instead",
	"log.queue":                "Ferry writes Kafka's log lines into its own log; set FERRY_LOG_LEVEL instead",
	"allow.auto.create.topics": "reading must not create topics; create them with the right number of partitions instead",
	"enabled_events":           "is not for operators; leave it out",
	"topic.blacklist":          "name the topics in the route file instead",
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

// configMap joins the fixed properties, the defaults and those that the operator passes through.
func configMap(cfg Config) (ck.ConfigMap, error) {
	m := ck.ConfigMap{
		"client.id":                          "ferry-ingester",
		"partition.assignment.strategy":      "cooperative-sticky",
		"queued.max.messages.kbytes":         strconv.Itoa(queuedKbytes),
		"fetch.max.bytes":                    strconv.Itoa(fetchBytes),
		"max.partition.fetch.bytes":          strconv.Itoa(partitionBytes),
		"receive.message.max.bytes":          strconv.Itoa(receiveBytes),
		"topic.metadata.refresh.interval.ms": strconv.Itoa(metadataRefreshMs),
		"fetch.wait.max.ms":                  "100",
		"log.connection.close":               "false", // brokers close idle connections: no news
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(cfg.Properties)) {
		if why, ok := refused[name]; ok {
			errs = append(errs, &PropertyError{name, why})
			continue
		}
		if strings.HasPrefix(name, "go.") {
			errs = append(errs, &PropertyError{name, "is not for operators; leave it out"})
			continue
		}
		if name == "fetch.message.max.bytes" { // the same under its older name
			delete(m, "max.partition.fetch.bytes")
		}
		m[name] = cfg.Properties[name]
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if cfg.Properties["group.protocol"] == "consumer" {
		// The broker decides assignments and timeouts then. librdkafka refuses these settings; an operator who gives
		// one is told by it.
		if _, given := cfg.Properties["partition.assignment.strategy"]; !given {
			delete(m, "partition.assignment.strategy")
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

// Check says what is wrong with the properties, without connecting to anything.
func Check(cfg Config) error {
	m, err := configMap(cfg)
	if err != nil {
		return err
	}
	delete(m, "bootstrap.servers")
	m["log_level"] = "0" // it would warn that there are no brokers
	c, err := ck.NewConsumer(&m)
	if err != nil {
		return settingsError(err)
	}
	if err := c.Close(); err != nil {
		return fmt.Errorf("closing a consumer that checked Kafka properties: %w", err)
	}
	return nil
}

func settingsError(err error) error {
	return fmt.Errorf("setting up the Kafka consumer: %w; check FERRY_KAFKA_CONFIG", err)
}
