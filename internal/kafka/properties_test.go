package kafka_test

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ck "github.com/confluentinc/confluent-kafka-go/v2/kafka"

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

func check(properties map[string]string) error {
	return kafka.Check(kafka.Config{Brokers: []string{"x:1"}, Group: "g", Properties: properties})
}

func warnings(properties map[string]string) []string {
	return kafka.Warnings(kafka.Config{Brokers: []string{"x:1"}, Group: "g", Properties: properties})
}

// props makes properties of names and values in turn.
func props(kv ...string) map[string]string {
	m := make(map[string]string, len(kv)/2)
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return m
}

func TestWhatIsTaken(t *testing.T) {
	t.Parallel()
	for _, properties := range []map[string]string{
		nil,
		props("partition.assignment.strategy", "range"),
		props("group.protocol", "consumer", "group.remote.assignor", "range", "group.instance.id", "a"),
		props("group.protocol", "CONSUMER"),
		props("group.instance.id", "a", "session.timeout.ms", "10000", "max.poll.interval.ms", "10000"),
		props("group.protocol.type", "consumer"),
		props("security.protocol", "sasl_ssl", "sasl.mechanism", "PLAIN", "sasl.username", "u", "sasl.password", "p"),
		props("security.protocol", "SASL_SSL", "sasl.mechanisms", "SCRAM-SHA-512", "sasl.username", "u", "sasl.password", "p"),
		props("security.protocol", "ssl", "ssl.ca.location", "probe"),
		props("fetch.message.max.bytes", "2000000"),
		props("max.partition.fetch.bytes", "2000000"),
		props("topic.metadata.refresh.interval.ms", "60000", "topic.metadata.refresh.sparse", "false"),
		props("socket.timeout.ms", "60000", "reconnect.backoff.ms", "100", "client.rack", "r", "check.crcs", "true"),
		props("debug", "cgrp", "statistics.interval.ms", "1000", "queued.max.messages.kbytes", "65536", "fetch.queue.backoff.ms", "10"),
	} {
		if err := check(properties); err != nil {
			t.Errorf("%v: %v", properties, err)
		}
		if got := warnings(properties); len(got) > 0 {
			t.Errorf("%v: warnings %q", properties, got)
		}
	}
}

// TestWhatIsRefused: by name, with what to do instead and without the value.
func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	for name, want := range map[string]string{
		"enable.auto.commit": "commits only what it has stored", "auto.commit.enable": "commits only", "auto.commit.interval.ms": "commits only",
		"enable.auto.offset.store": "commits only", "offset.store.method": "positions in its database",
		"offset.store.path": "positions in its database", "offset.store.sync.interval.ms": "positions in its database",
		"auto.offset.reset": "first record", "isolation.level": "read_committed", "enable.partition.eof": "lag",
		"topic.blacklist": "route file", "allow.auto.create.topics": "create them", "bootstrap.servers": "set FERRY_KAFKA_BROKERS",
		"metadata.broker.list": "set FERRY_KAFKA_BROKERS", "group.id": "set FERRY_KAFKA_GROUP", "log.queue": "set FERRY_LOG_LEVEL",
		"enabled_events": "not for operators", "internal.termination.signal": "not for operators", "go.events.channel.enable": "not for operators",
		"go.logs.channel": "not for operators", "api.version.request": "headers", "api.version.fallback.ms": "headers",
		"broker.version.fallback": "headers", "plugin.library.paths": "other code", "test.mock.num.brokers": "makes up a cluster",
		"test.mock.broker.rtt": "makes up a cluster", "group.protocol.type": "leave it out",
	} {
		// Whatever the value, and also by the longer name that librdkafka knows it by.
		for _, value := range []string{secret, "", "1", "false"} {
			err := check(props(name, value))
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name+": ") {
				t.Errorf("%s=%s: %v, want %q", name, value, err, want)
			}
			if err := check(props("topic."+name, value)); err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("topic.%s: %v", name, err)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error shows the value: %v", name, err)
			}
		}
	}
	// Only some values, or in some company.
	directory := t.TempDir()
	for want, properties := range map[string]map[string]string{
		"topic.metadata.refresh.interval.ms: new topics": props("topic.metadata.refresh.interval.ms", "-1"),
		"set 1..60000":                            props("topic.metadata.refresh.interval.ms", "60001"),
		"socket.max.fails: ":                      props("socket.max.fails", "0"),
		"No such configuration property":          props("no.such.property", "1"),
		"session.timeout.ms":                      props("session.timeout.ms", secret),
		"sasl.mechanism: is another name of":      props("sasl.mechanism", "PLAIN", "sasl.mechanisms", "SCRAM-SHA-256"),
		"is another name of fetch":                props("max.partition.fetch.bytes", "1", "fetch.message.max.bytes", "2"),
		"Kerberos (GSSAPI), which":                props("security.protocol", "sasl_ssl", "sasl.username", "u"),
		"set PLAIN, SCRAM-SHA-256":                props("security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "GSSAPI"),
		"nowhere to get tokens from":              props("security.protocol", "sasl_ssl", "sasl.mechanism", "OAUTHBEARER"),
		"sasl.oauthbearer.method: ":               props("security.protocol", "sasl_ssl", "sasl.mechanism", "OAUTHBEARER", "sasl.oauthbearer.method", "default"),
		"aws_iam by name only":                    props("sasl.oauthbearer.metadata.authentication.type", "aws_iam"),
		"ssl.ca.location: its file can't be read": props("security.protocol", "ssl", "ssl.ca.location", filepath.Join(directory, secret)),
		"ssl.key.location: its file":              props("security.protocol", "ssl", "ssl.key.location", filepath.Join(directory, secret)),
		"sasl.oauthbearer.token.endpoint.url":     props("security.protocol", "sasl_ssl", "sasl.mechanism", "OAUTHBEARER", "sasl.oauthbearer.method", "oidc"),
	} {
		if err := check(properties); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret+`/`) {
			t.Errorf("%v: %v, want %q", properties, err, want)
		}
	}
	err := check(props("isolation.level", "x", "group.id", "y", "security.protocol", "sasl_ssl", "ssl.ca.location", "/no/such"))
	for _, name := range []string{"isolation.level", "group.id", "sasl.mechanism", "ssl.ca.location"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("not all faults at once: %v", err)
		}
	}
}

// TestWhatIsLeftOut: what librdkafka refuses under group.protocol=consumer is left out and named, and nothing else is.
func TestWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	all := props("group.protocol", "consumer", "partition.assignment.strategy", "range", "session.timeout.ms", "10000",
		"heartbeat.interval.ms", "1000", "group.protocol.type", "consumer")
	for name, value := range all {
		if name == "group.protocol" {
			continue
		}
		if err := check(props("group.protocol", "consumer", name, value)); err != nil {
			t.Errorf("%s is not left out: %v", name, err)
		}
		if got := warnings(props("group.protocol", "Consumer", name, value)); len(got) != 1 || !strings.Contains(got[0], name+": left out") {
			t.Errorf("%s: warnings %q", name, got)
		}
		if got := warnings(props(name, value)); len(got) > 0 {
			t.Errorf("%s is left out under the classic protocol: %q", name, got)
		}
		c, err := ck.NewConsumer(&ck.ConfigMap{"group.id": "g", "group.protocol": "consumer", name: value})
		if err == nil {
			t.Errorf("librdkafka takes %s by now: it need not be left out any more", name)
			_ = c.Close()
		}
	}
	got := warnings(all)
	if len(got) != 1 || !strings.Contains(got[0], "partition.assignment.strategy, session.timeout.ms, heartbeat.interval.ms, group.protocol.type") {
		t.Errorf("one line is to name them all: %q", got)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	login := func(kv ...string) map[string]string {
		m := props("security.protocol", "sasl_ssl", "sasl.mechanism", "PLAIN", "sasl.username", "u", "sasl.password", "s3cret")
		maps.Copy(m, props(kv...))
		return m
	}
	for want, properties := range map[string]map[string]string{
		"enable.ssl.certificate.verification=false": login("enable.ssl.certificate.verification", "false"),
		"identification.algorithm=none":             login("ssl.endpoint.identification.algorithm", "none"),
		"clear text":                                login("security.protocol", "sasl_plaintext"),
		"for tests only":                            props("security.protocol", "SASL_SSL", "sasl.mechanism", "OAUTHBEARER", "enable.sasl.oauthbearer.unsecure.jwt", "true"),
		"ssl.key.password: without effect":          props("ssl.key.password", "s3cret"),
		"sasl.password, sasl.username: without":     props("sasl.username", "u", "sasl.password", "s3cret"),
		"max.poll.interval.ms=6000":                 props("max.poll.interval.ms", "6000", "session.timeout.ms", "6000"),
	} {
		got := warnings(properties)
		if len(got) != 1 || !strings.Contains(got[0], want) || strings.Contains(got[0], "s3cret") {
			t.Errorf("%v: %q, want %q", properties, got, want)
		}
		if err := check(properties); err != nil {
			t.Errorf("%v: %v", properties, err)
		}
	}
	if got := warnings(props("ssl.ca.pem", "x", "sasl.password", "y")); len(got) != 2 || slices.Equal(got[:1], got[1:]) {
		t.Errorf("two warnings: %q", got)
	}
}

// TestCheckConnectsToNothing: neither to the brokers nor to where tokens come from.
func TestCheckConnectsToNothing(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		conn, err := l.Accept()
		if err == nil {
			t.Error("the check connects to something")
			conn.Close()
		}
	}()
	addr := l.Addr().String()
	if err := kafka.Check(kafka.Config{Brokers: []string{addr}, Group: "g", Properties: props(
		"security.protocol", "sasl_ssl", "sasl.mechanism", "OAUTHBEARER", "sasl.oauthbearer.method", "oidc",
		"sasl.oauthbearer.client.id", "ferry", "sasl.oauthbearer.client.secret", "s", "sasl.oauthbearer.token.endpoint.url", "http://"+addr,
	)}); err != nil {
		t.Error(err)
	}
	l.Close()
	<-accepted
}
