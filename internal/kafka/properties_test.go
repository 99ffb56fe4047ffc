package kafka_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/kafka"
)

func TestProperties(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kafka.properties")
	if err := os.WriteFile(file, []byte("# comment\n\nclient.id = x \nsasl.password=a,b=c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]map[string]string{
		"":                              {},
		"  ":                            {},
		"a=b":                           {"a": "b"},
		"a=b,c=d":                       {"a": "b", "c": "d"},
		" a = b , c=d,":                 {"a": "b", "c": "d"},
		`a=b\,c,d=e`:                    {"a": "b,c", "d": "e"},
		`a=b\c`:                         {"a": `b\c`},
		"a=b=c":                         {"a": "b=c"},
		"a=":                            {"a": ""},
		`brokers=h:1\,h:2\,h:3,group=g`: {"brokers": "h:1,h:2,h:3", "group": "g"},
		file:                            {"client.id": "x", "sasl.password": "a,b=c"},
	} {
		got, err := kafka.Properties(text)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %v %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"a=b,secret":       "number 2",
		"=b":               "number 1",
		"a=b,a=c":          "a: is set twice",
		"/no/such/file.xy": "reading Kafka properties",
	} {
		_, err := kafka.Properties(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error shows a part of the text: %v", text, err)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	good := []map[string]string{
		nil,
		{"partition.assignment.strategy": "range"},
		{"group.protocol": "consumer"},
		{"group.instance.id": "a", "session.timeout.ms": "10000", "max.poll.interval.ms": "10000"},
		{"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"},
		{"fetch.message.max.bytes": "2000000"},
	}
	for _, properties := range good {
		if err := kafka.Check(kafka.Config{Brokers: []string{"x:1"}, Group: "g", Properties: properties}); err != nil {
			t.Errorf("%v: %v", properties, err)
		}
	}
	for name, want := range map[string]string{
		"enable.auto.commit": "commits only what it has stored", "enable.auto.offset.store": "commits only what it has stored",
		"auto.commit.interval.ms": "commits only", "isolation.level": "read_committed", "auto.offset.reset": "first record",
		"enable.partition.eof": "lag", "bootstrap.servers": "FERRY_KAFKA_BROKERS", "metadata.broker.list": "FERRY_KAFKA_BROKERS",
		"group.id": "FERRY_KAFKA_GROUP", "go.events.channel.enable": "not for operators", "no.such.property": "No such configuration property",
		"session.timeout.ms": "Invalid value", "auto.commit.enable": "commits only", "allow.auto.create.topics": "create",
	} {
		err := kafka.Check(kafka.Config{Brokers: []string{"x:1"}, Group: "g", Properties: map[string]string{name: "s3cret"}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	both := map[string]string{"group.protocol": "consumer", "partition.assignment.strategy": "range"}
	if err := kafka.Check(kafka.Config{Brokers: []string{"x:1"}, Group: "g", Properties: both}); err == nil ||
		!strings.Contains(err.Error(), "partition.assignment.strategy") {
		t.Errorf("a strategy under the consumer protocol: %v", err)
	}
	two := map[string]string{"isolation.level": "x", "group.id": "y"}
	if err := kafka.Check(kafka.Config{Brokers: []string{"x:1"}, Group: "g", Properties: two}); err == nil ||
		!strings.Contains(err.Error(), "isolation.level") || !strings.Contains(err.Error(), "group.id") {
		t.Errorf("not all faults at once: %v", err)
	}
}
