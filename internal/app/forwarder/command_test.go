package forwarder_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

var binaries proctest.Binaries

func TestMain(m *testing.M) {
	code := pgtest.Main(m).Run()
	binaries.Clean()
	os.Exit(code)
}

const patience = 30 * time.Second

// away is a database that refuses connections.
const away = "FERRY_DATABASE_URL=postgres://ferry:geheim@127.0.0.1:1/ferry?connect_timeout=1"

const goodRoutes = `version: 1
routes:
  - name: a
    topics: [t]
    request: {method: POST, url: "${PLATFORM}/x", headers: {X-Token: "${TOKEN}"}}
`

// routes writes a route file and returns the settings that name it.
func routes(t *testing.T, text string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "routes.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"FERRY_ROUTES=" + path, "PLATFORM=http://127.0.0.1:1", "TOKEN=geheim", "FERRY_ADMIN_ADDR=127.0.0.1:0"}
}

func forwarder(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	stdout, stderr, code = proctest.Run(t, binaries.Path(t, "forwarder"), env, args...)
	if strings.Contains(stdout+stderr, "geheim") {
		t.Errorf("%v prints a secret:\n%s%s", args, stdout, stderr)
	}
	return stdout, stderr, code
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"fly"}, {"run", "--fast"}, {"run", "now"}, {"migrate"}, {"migrate", "down"}, {"help", "fly"}} {
		stdout, stderr, code := forwarder(t, nil, args...)
		if code != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit %d\n%s%s", args, code, stdout, stderr)
		}
	}
	for _, args := range [][]string{{"help"}, {"--help"}, {"help", "env"}, {"version"}, {"help", "migrate"}} {
		if stdout, stderr, code := forwarder(t, nil, args...); code != 0 || stdout == "" || stderr != "" {
			t.Errorf("%v: exit %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := forwarder(t, append(routes(t, goodRoutes), away, "FERRY_BATCHSIZE=1"), "check")
	if code != 0 || !strings.Contains(stderr, "warning: FERRY_BATCHSIZE") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	for _, want := range []string{"postgres://ferry:***@127.0.0.1:1/ferry", "route a", "${PLATFORM}/x", "worked here: a\n", "taken to be lost"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("check does not say %q:\n%s", want, stdout)
		}
	}
}

func TestFaultsAreToldTogether(t *testing.T) {
	t.Parallel()
	env := append(routes(t, strings.ReplaceAll(goodRoutes, "topics", "topic")), "FERRY_LOG_LEVEL=loud", "FERRY_SHUTDOWN_TIMEOUT=0s")
	for command, want := range map[string]int{"check": 1, "run": 2} {
		stdout, stderr, code := forwarder(t, env, command)
		if code != want || stdout != "" {
			t.Errorf("%s: exit %d\n%s", command, code, stdout)
		}
		for _, fault := range []string{"FERRY_DATABASE_URL: is not set", "FERRY_LOG_LEVEL: ", "FERRY_SHUTDOWN_TIMEOUT: ", "routes.yaml:4:"} {
			if strings.Count(stderr, fault) != 1 {
				t.Errorf("%s does not say %q once:\n%s", command, fault, stderr)
			}
		}
	}
	_, stderr, code := forwarder(t, append(routes(t, goodRoutes), away, "FERRY_ROUTE_NAMES=a,b"), "check")
	if code != 1 || !strings.HasPrefix(stderr, `FERRY_ROUTE_NAMES: there is no route "b" in `) {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	_, stderr, code = forwarder(t, []string{away, "FERRY_ROUTES=/nowhere/routes.yaml"}, "run")
	if code != 2 || !strings.Contains(stderr, "/nowhere/routes.yaml") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	addr := listener.Addr().String()
	_, stderr, code := forwarder(t, append(routes(t, goodRoutes), away, "FERRY_ADMIN_ADDR="+addr), "run")
	if code != 2 || !strings.Contains(stderr, addr) || !strings.Contains(stderr, "set FERRY_ADMIN_ADDR") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	env := []string{"FERRY_DATABASE_URL=" + pgtest.Empty(t)}
	if stdout, stderr, code := forwarder(t, env, "migrate", "status"); code != 1 || !strings.Contains(stdout, "pending         river 1") ||
		!strings.Contains(stderr, "forwarder migrate up") {
		t.Errorf("before: exit %d\n%s%s", code, stdout, stderr)
	}
	for range 2 {
		if _, stderr, code := forwarder(t, env, "migrate", "up"); code != 0 || !strings.Contains(stderr, "the schema is current") {
			t.Errorf("up: exit %d\n%s", code, stderr)
		}
	}
	if stdout, stderr, code := forwarder(t, env, "migrate", "status"); code != 0 || stderr != "" || !strings.Contains(stdout, "pending         none") {
		t.Errorf("after: exit %d\n%s%s", code, stdout, stderr)
	}
}

func TestMigrateWithoutDatabase(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"up", "status"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			_, stderr, code := forwarder(t, []string{away}, "migrate", command)
			if took := time.Since(begin); code != 3 || took < 9*time.Second || took > patience || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit %d after %s\n%s", code, took, stderr)
			}
		})
	}
}

// run starts forwarder run and returns it with its admin port's address.
func run(t *testing.T, env ...string) (*proctest.Proc, string) {
	t.Helper()
	p := proctest.Start(t, binaries.Path(t, "forwarder"), append(routes(t, goodRoutes), env...), "run")
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
				return fmt.Errorf("%s: %d %s", url, got, body)
			}
		}
		return nil
	})
}

func TestRunWithoutDatabase(t *testing.T) {
	t.Parallel()
	p, url := run(t, away)
	wait(t, url+"/readyz", 503, `"ready":false`, `"database":{"ok":false,"why":"checking`, `"routes":{"ok":true,"why":""}`)
	wait(t, url+"/livez", 200, `{"alive":true}`)
	wait(t, url+"/version", 200, `"binary":"forwarder"`)
	wait(t, url+"/metrics", 200, `ferry_attempts_total{code="200",route="a",verdict="delivered"} 0`, `ferry_messages{route="a",state="in_progress"} 0`,
		"ferry_db_pool_max_connections 10", "ferry_build_info{", `ferry_worker_slots{route="a",state="used"} 0`)
	if code, took := p.Term(patience); code != 0 || took > 10*time.Second {
		t.Errorf("exit %d after %s", code, took)
	}
	if strings.Contains(p.Log(), "geheim") {
		t.Errorf("the log has a secret:\n%s", p.Log())
	}
}

func TestRunWaitsForTheSchema(t *testing.T) {
	t.Parallel()
	database := "FERRY_DATABASE_URL=" + pgtest.Empty(t)
	p, url := run(t, database)
	wait(t, url+"/readyz", 503, `"database":{"ok":true,"why":""}`, `"schema":{"ok":false,"why":"`, "run forwarder migrate up")
	if _, stderr, code := forwarder(t, []string{database}, "migrate", "up"); code != 0 {
		t.Fatal(stderr)
	}
	wait(t, url+"/readyz", 200, `"ready":true`)
	wait(t, url+"/metrics", 200, `ferry_messages{route="a",state="pending"} 0`)
	if code, took := p.Term(patience); code != 0 || took > 10*time.Second {
		t.Errorf("exit %d after %s", code, took)
	}
}

// Dead letters need Kafka, where a route that is worked here has them; whatever is wrong with it is told at start.
func TestKafkaOfDeadLetters(t *testing.T) {
	t.Parallel()
	dead := strings.Replace(goodRoutes, "    topics: [t]", "    topics: [t]\n    dead_letter: {topic: \"dead-of-${TOKEN}\"}", 1) +
		"  - {name: b, topics: [t], request: {url: \"http://localhost/x\"}}\n"
	const brokers = "FERRY_KAFKA_BROKERS=kafka-1:9092"
	for name, test := range map[string]struct {
		file     string
		env      []string
		run      int
		contains string
	}{
		"none":                  {dead, nil, 2, "FERRY_KAFKA_BROKERS: is not set, and route a has dead_letter; set such as kafka-1:9092,kafka-2:9092, or remove"},
		"other routes":          {dead, []string{"FERRY_ROUTE_NAMES=b"}, 0, "dead letters of a are left to forwarders with FERRY_KAFKA_BROKERS\n"},
		"other routes too":      {dead, []string{"FERRY_ROUTE_NAMES=b", brokers}, 0, "dead letters written here: those of a\n"},
		"given":                 {dead, []string{brokers}, 0, "  dead letter  dead-of-${TOKEN}\n"},
		"without":               {goodRoutes, nil, 0, "no route has dead letters\n"},
		"not looked at":         {goodRoutes, []string{brokers, "FERRY_KAFKA_CONFIG=acks=1"}, 0, "no route has dead letters\n"},
		"of both":               {dead, []string{brokers, "FERRY_KAFKA_CONFIG=session.timeout.ms=6000,group.instance.id=x"}, 0, "written here"},
		"warned":                {dead, []string{brokers, "FERRY_KAFKA_CONFIG=ssl.ca.location=probe"}, 0, "warning: FERRY_KAFKA_CONFIG: ssl.ca.location: without effect"},
		"wrong broker":          {dead, []string{"FERRY_KAFKA_BROKERS=http://x"}, 2, "FERRY_KAFKA_BROKERS: "},
		"wrong":                 {dead, []string{brokers, "FERRY_KAFKA_CONFIG=acks=geheim,no.such=1"}, 2, "FERRY_KAFKA_CONFIG: Kafka property acks: a dead letter counts"},
		"wrong form":            {dead, []string{brokers, "FERRY_KAFKA_CONFIG=a=b,geheim"}, 2, "FERRY_KAFKA_CONFIG: Kafka property number 2"},
		"unknown property":      {dead, []string{brokers, "FERRY_KAFKA_CONFIG=no.such=1"}, 2, "no.such"},
		"what breaks a promise": {dead, []string{brokers, "FERRY_KAFKA_CONFIG=transactional.id=x"}, 2, "FERRY_KAFKA_CONFIG: Kafka property transactional.id: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := append(append(routes(t, test.file), away), test.env...)
			stdout, stderr, code := forwarder(t, env, "check")
			if want := min(test.run, 1); code != want || !strings.Contains(stdout+stderr, test.contains) {
				t.Errorf("check: exit %d, want %d and %q\n%s%s", code, want, test.contains, stdout, stderr)
			}
			if test.run == 0 {
				return
			}
			if _, stderr, code := forwarder(t, env, "run"); code != test.run || !strings.Contains(stderr, test.contains) {
				t.Errorf("run: exit %d\n%s", code, stderr)
			}
		})
	}
}
