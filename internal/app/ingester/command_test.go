package ingester_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

var binaries proctest.Binaries // built once for the package's tests

func TestMain(m *testing.M) {
	code := pgtest.Main(m).Run()
	binaries.Clean()
	os.Exit(code)
}

const (
	patience = 30 * time.Second
	// away is a database, and nobody a broker, that refuses connections.
	away   = "FERRY_DATABASE_URL=postgres://ferry:geheim@127.0.0.1:1/ferry?connect_timeout=1"
	nobody = "FERRY_KAFKA_BROKERS=127.0.0.1:1"
)

// routes writes a route file that reads a topic and returns the settings that name it.
func routes(t *testing.T, topic string) []string {
	t.Helper()
	return routesOf(t, "topics: ["+topic+"]")
}

// routesOf writes a route file in which a line says what is read.
func routesOf(t *testing.T, topics string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "routes.yaml")
	text := `version: 1
routes:
  - name: a
    ` + topics + `
    message_key: .id
    request: {method: POST, url: "${PLATFORM}/x", headers: {X-Token: "${TOKEN}"}}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"FERRY_ROUTES=" + path, "PLATFORM=http://127.0.0.1:1", "TOKEN=geheim", "FERRY_ADMIN_ADDR=127.0.0.1:0"}
}

func ingester(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	stdout, stderr, code = proctest.Run(t, binaries.Path(t, "ingester"), env, args...)
	if strings.Contains(stdout+stderr, "geheim") {
		t.Errorf("%v prints a secret:\n%s%s", args, stdout, stderr)
	}
	return stdout, stderr, code
}

func TestCommands(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"fly"}, {"run", "--fast"}, {"migrate", "up"}} {
		if stdout, stderr, code := ingester(t, nil, args...); code != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit %d\n%s%s", args, code, stdout, stderr)
		}
	}
	for _, args := range [][]string{{"help"}, {"help", "env"}, {"version"}} {
		if stdout, stderr, code := ingester(t, nil, args...); code != 0 || stdout == "" || stderr != "" {
			t.Errorf("%v: exit %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := ingester(t, append(routes(t, "t"), away, nobody, "FERRY_KAFKA_CONFIG=client.id=geheim"), "check")
	if code != 0 || stderr != "" {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	for _, want := range []string{"postgres://ferry:***@127.0.0.1:1/ferry", "client.id=***", "route a", ".id", "reads t as group ferry"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("check does not say %q:\n%s", want, stdout)
		}
	}
}

func TestFaultsAreToldTogether(t *testing.T) {
	t.Parallel()
	env := append(routes(t, "[]"), "FERRY_BATCH_SIZE=abc", `FERRY_KAFKA_CONFIG=enable.auto.commit=true,sasl.mechanism=geheim\,x,no.such.thing=1`)
	for command, want := range map[string]int{"check": 1, "run": 2} {
		stdout, stderr, code := ingester(t, env, command)
		if code != want || stdout != "" {
			t.Errorf("%s: exit %d\n%s", command, code, stdout)
		}
		for _, fault := range []string{
			"FERRY_DATABASE_URL: is not set", "FERRY_KAFKA_BROKERS: is not set", `FERRY_BATCH_SIZE: "abc" is not a whole number; set 1..10000`,
			"FERRY_KAFKA_CONFIG: Kafka property enable.auto.commit", "routes.yaml:4:",
		} {
			if strings.Count(stderr, fault) != 1 {
				t.Errorf("%s does not say %q once:\n%s", command, fault, stderr)
			}
		}
	}
	_, stderr, code := ingester(t, append(routes(t, "t"), away, nobody, "FERRY_KAFKA_CONFIG=no.such.thing=1"), "check")
	if code != 1 || !strings.HasPrefix(stderr, "FERRY_KAFKA_CONFIG: ") || !strings.Contains(stderr, "no.such.thing") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}

// TestKafkaProperties: those that would break a promise are refused by name, by both commands; those that the brokers
// decide are left out and named.
func TestKafkaProperties(t *testing.T) {
	t.Parallel()
	env := append(routes(t, "t"), away, nobody)
	for property, want := range map[string]string{
		"enable.auto.commit=true":        "enable.auto.commit: ",
		"topic.auto.offset.reset=geheim": "topic.auto.offset.reset: ",
		"group.id=geheim":                "set FERRY_KAFKA_GROUP instead",
		"security.protocol=sasl_ssl,sasl.mechanism=OAUTHBEARER,debug=all": "sasl.oauthbearer.method: ",
	} {
		for command, code := range map[string]int{"check": 1, "run": 2} {
			stdout, stderr, got := ingester(t, append(env, "FERRY_KAFKA_CONFIG="+property), command)
			if got != code || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, want) ||
				!strings.HasPrefix(stderr, "FERRY_KAFKA_CONFIG: Kafka property ") {
				t.Errorf("%s %s: exit %d\n%s%s", command, property, got, stdout, stderr)
			}
		}
	}
	const leftOut = "session.timeout.ms, heartbeat.interval.ms: left out"
	config := "FERRY_KAFKA_CONFIG=group.protocol=consumer,heartbeat.interval.ms=1000,session.timeout.ms=9000,debug=all"
	_, stderr, code := ingester(t, append(env, config), "check")
	if code != 0 || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "warning: FERRY_KAFKA_CONFIG: "+leftOut) {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	p, _ := run(t, "t", away, nobody, config)
	p.WaitLog(leftOut, patience) // it comes after the line that run waits for
	if strings.Count(p.Log(), leftOut) != 1 || !strings.Contains(p.Log(), `"level":"warn"`) {
		t.Error("run does not name once what it leaves out")
	}
	stop(t, p)
}

// run starts ingester run and returns it with its admin port's address.
func run(t *testing.T, topic string, env ...string) (*proctest.Proc, string) {
	t.Helper()
	return start(t, append(routes(t, topic), env...))
}

// start is run with the settings that are given.
func start(t *testing.T, env []string) (*proctest.Proc, string) {
	t.Helper()
	p := proctest.Start(t, binaries.Path(t, "ingester"), env, "run")
	p.WaitLog(`"message":"started"`, patience)
	_, rest, _ := strings.Cut(p.Log(), `"admin":"`)
	addr, _, _ := strings.Cut(rest, `"`)
	return p, "http://" + addr
}

func get(t *testing.T, url string) (int, string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

func wait(t *testing.T, url string, code int, parts ...string) {
	t.Helper()
	proctest.Eventually(t, patience, func() error {
		got, body, err := get(t, url)
		if err != nil {
			return err
		}
		for _, part := range parts {
			if got != code || !strings.Contains(body, part) {
				return fmt.Errorf("%s: %d, and it lacks %s:\n%s", url, got, part, body)
			}
		}
		return nil
	})
}

func stop(t *testing.T, p *proctest.Proc) {
	t.Helper()
	if code, took := p.Term(patience); code != 0 || took > 10*time.Second {
		t.Errorf("exit %d after %s", code, took)
	}
	if strings.Contains(p.Log(), "geheim") {
		t.Errorf("the log has a secret:\n%s", p.Log())
	}
}

func TestRunWithNothingThere(t *testing.T) {
	t.Parallel()
	p, url := run(t, "t", away, nobody)
	wait(t, url+"/readyz", 503, `"ready":false`, `"database":{"ok":false,"why":"`, `"kafka":{"ok":false,"why":"`, `"topics":{"ok":false`,
		`"routes":{"ok":true,"why":""}`)
	wait(t, url+"/livez", 200, `{"alive":true}`)
	wait(t, url+"/metrics", 200, `ferry_ingest_records_total{result="stored",topic="t"} 0`, `ferry_key_fallback_total{route="a"} 0`,
		"ferry_position_rewinds_total 0", "ferry_ingest_batch_seconds_count 0", "ferry_db_pool_max_connections 4", "ferry_build_info{")
	stop(t, p)
}

func TestRunWaitsForATopic(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	topic := kafkatest.Name("late")
	p, url := run(t, topic, "FERRY_DATABASE_URL="+pgtest.New(t), "FERRY_KAFKA_BROKERS="+cluster.Addr)
	wait(t, url+"/readyz", 503, `"database":{"ok":true,"why":""}`, `"schema":{"ok":true,"why":""}`, `"topics":{"ok":false,"why":"`, topic)
	cluster.CreateTopic(t, topic, 1, nil)
	cluster.Produce(t, topic, kafkatest.Value(`{"id":"1"}`), kafkatest.Value(`{"id":"2"}`), kafkatest.Value(`{"id":"2"}`))
	wait(t, url+"/metrics", 200, `ferry_ingest_records_total{result="stored",topic="`+topic+`"} 2`,
		`ferry_ingest_records_total{result="duplicate",topic="`+topic+`"} 1`, `ferry_ingest_lag{partition="0",topic="`+topic+`"} 0`)
	wait(t, url+"/readyz", 200, `"ready":true`)
	stop(t, p)
}

// TestRunWaitsForATopicThatMatches: what topics_regex matches is found by the running process.
func TestRunWaitsForATopicThatMatches(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	base := kafkatest.Name("match")
	env := append(routesOf(t, `topics_regex: '`+base+`\.[a-z]+'`), "FERRY_DATABASE_URL="+pgtest.New(t), "FERRY_KAFKA_BROKERS="+cluster.Addr)
	stdout, _, code := ingester(t, env, "check")
	if want := `reads topics that match ` + base + `\.[a-z]+ as group ferry`; code != 0 || !strings.Contains(stdout, want) {
		t.Errorf("exit %d, check does not say %q:\n%s", code, want, stdout)
	}
	p, url := start(t, env)
	wait(t, url+"/readyz", 503, `"database":{"ok":true,"why":""}`, `"kafka":{"ok":true,"why":""}`,
		`"topics":{"ok":false,"why":"no topic matches `+base+`\\.[a-z]+ yet; create one, or correct topics_regex in the route file"}`)
	for _, name := range []string{base + ".a", base + ".1", "__" + base + ".a"} {
		cluster.CreateTopic(t, name, 1, nil)
		cluster.Produce(t, name, kafkatest.Value(`{"id":"1"}`), kafkatest.Value(`{"id":"2"}`))
	}
	wait(t, url+"/metrics", 200, `ferry_ingest_records_total{result="stored",topic="`+base+`.a"} 2`,
		`ferry_ingest_records_total{result="conflict",topic="`+base+`.a"} 0`, `ferry_ingest_lag{partition="0",topic="`+base+`.a"} 0`)
	wait(t, url+"/readyz", 200, `"ready":true`)
	if _, metrics, err := get(t, url+"/metrics"); err != nil || strings.Contains(metrics, base+".1") || strings.Contains(metrics, "__"+base) {
		t.Errorf("it reads what does not match: %v\n%s", err, metrics)
	}
	stop(t, p)
}

func TestRunRefusesADatabaseThatForgets(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	var name string
	if err := conn.QueryRow(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "ALTER DATABASE "+pgx.Identifier{name}.Sanitize()+" SET synchronous_commit = off"); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := ingester(t, append(routes(t, "t"), "FERRY_DATABASE_URL="+url, nobody), "run")
	if code != 2 || !strings.Contains(stderr, "synchronous_commit is off") || !strings.Contains(stderr, "set it to on") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}

func TestRunRefusesASchemaForNewerBinaries(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "INSERT INTO ferry.schema_versions (version, name, must_know) VALUES (900, 'later', 900)"); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := ingester(t, append(routes(t, "t"), "FERRY_DATABASE_URL="+url, nobody), "run")
	if code != 2 || !strings.Contains(stderr, "run a newer release of Ferry") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}
