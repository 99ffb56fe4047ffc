package forwarder_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ferry-forward/ferry/internal/message"
)

const tryRoutes = `version: 1
vars: {token: "${TOKEN}"}
routes:
  - name: events
    topics: [t]
    message_key: .id
    filter: .kind != "noise"
    request:
      url: ${PLATFORM}/events/\(.id)
      headers: {Authorization: 'Bearer \($vars.token)'}
      forward_headers: [h-*]
      body: '{id, at: $timestamp, key: $key, where: "\($topic)/\($partition)/\($offset)", list: [.list[]?], n: (.n + 1)}'
    response:
      rules:
        - {when: '.status == 200 and .body.result == 0', then: delivered, reason: taken}
        - {when: '.body.code.x == 1', then: reject}
      error_code: .body.code
      otherwise: retry
  - name: wide
    topics_regex: wide-.*
    request: {url: "${PLATFORM}/wide"}
  - name: as-it-came
    topics: [raw]
    decode: bytes
    request: {url: "${PLATFORM}/raw", method: PUT}
`

// tryScene is a folder with a route file and whatever is tried.
type tryScene struct {
	*testing.T
	dir string
	env []string
}

// newTryScene has neither a database nor Kafka.
func newTryScene(t *testing.T, platform string) *tryScene {
	t.Helper()
	s := &tryScene{T: t, dir: t.TempDir()}
	s.env = []string{"FERRY_ROUTES=" + s.file("routes.yaml", tryRoutes), "PLATFORM=" + platform, "TOKEN=geheim"}
	return s
}

func (s *tryScene) file(name, content string) string {
	s.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

// version and duration differ from run to run.
var differs = regexp.MustCompile(`ferry/[^\s'"]+|after \d+ ms`)

func (s *tryScene) golden(name, stdout, stderr string, code int) {
	s.Helper()
	got := strings.ReplaceAll(stdout+"--- stderr, exit "+string(rune('0'+code))+"\n\n"+stderr, s.dir+"/", "")
	got = differs.ReplaceAllStringFunc(got, func(m string) string {
		if strings.HasPrefix(m, "ferry/") {
			return "ferry/VERSION"
		}
		return "after N ms"
	})
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			s.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		s.Fatalf("%v; write it with -update", err)
	}
	if got != string(want) {
		s.Errorf("got:\n%s\nwant, by %s (-update writes it anew):\n%s", got, path, want)
	}
}

func trySchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("../../../docs/schemas/try.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// report runs try --json and holds its output against the schema.
func (s *tryScene) report(want int, args ...string) map[string]any {
	s.Helper()
	stdout, stderr, code := forwarder(s.T, s.env, append([]string{"try", "--json"}, args...)...)
	if code != want {
		s.Fatalf("%v: exit %d, want %d\n%s%s", args, code, want, stdout, stderr)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(stdout))
	if err != nil {
		s.Fatalf("%v: %v\n%s", args, err, stdout)
	}
	if err := trySchema(s.T).Validate(v); err != nil {
		s.Errorf("%v: %v\n%s", args, err, stdout)
	}
	return v.(map[string]any)
}

func TestTryOutput(t *testing.T) {
	t.Parallel()
	s := newTryScene(t, "https://api.example.com")
	good := s.file("good.json", `{"id": "m-1", "n": 1.10, "list": ["it's", null]}`)
	for name, args := range map[string][]string{
		"try.txt":             {"--route", "events", "--timestamp", "2026-01-02T03:04:05Z", "--key", "k", "--header", "h-a=x=y", "--header", "h-a=", "--partition", "3", "--offset", "42", good},
		"try-response.txt":    {"--route", "events", "--timestamp", "2026-01-02T03:04:05Z", "--response", s.file("answer.txt", "HTTP/1.1 100 Continue\r\n\r\nHTTP/2 200 \r\nX-A: b\r\nx-secret: geheim\r\n\r\n{\"result\":0,\"code\":7,\"t\":\"geheim\"}"), good},
		"try-fault.txt":       {"--route", "events", "--timestamp", "2026-01-02T03:04:05Z", "--response", s.file("answer.json", `{"status": 503, "headers": {"Retry-After": 30}, "body": {"code": "a"}}`), good},
		"try-no-answer.txt":   {"--route", "events", "--timestamp", "2026-01-02T03:04:05Z", "--response", s.file("answer.yaml", "error: timeout\nduration_ms: 10000\n"), good},
		"try-filtered.txt":    {"--route", "events", "--timestamp", "2026-01-02T03:04:05Z", s.file("noise.json", `{"kind":"noise"}`)},
		"try-undecodable.txt": {"--route", "events", "--timestamp", "2026-01-02T03:04:05Z", s.file("bad.json", `{"id":}`)},
		"try-unmappable.txt":  {"--route", "events", "--timestamp", "2026-01-02T03:04:05Z", s.file("odd.json", `{"id":"1","n":"x"}`)},
		"try-template.txt":    {"--route", "events", "--timestamp", "2026-01-02T03:04:05Z", s.file("noid.json", `{"n":1}`)},
		"try-bytes.txt":       {"--route", "as-it-came", "--timestamp", "2026-01-02T03:04:05Z", s.file("bytes", "\x00\xff'")},
		"try-empty.txt":       {"--route", "as-it-came", "--topic", "elsewhere", "--timestamp", "2026-01-02T03:04:05Z", s.file("nothing", "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, code := forwarder(t, s.env, append([]string{"try"}, args...)...)
			(&tryScene{T: t, dir: s.dir}).golden(name, stdout, stderr, code)
			if r := (&tryScene{T: t, dir: s.dir, env: s.env}).report(code, args...); (r["error"] != nil) != (code == 1) {
				t.Errorf("exit %d with the error %v", code, r["error"])
			}
		})
	}
}

func TestTryWrongUse(t *testing.T) {
	t.Parallel()
	s := newTryScene(t, "https://api.example.com")
	good := s.file("good.json", `{"id":"m-1"}`)
	for want, args := range map[string][]string{
		"--route is missing":                                 {good},
		"takes one file":                                     {"--route", "events"},
		`no route "evnts" in`:                                {"--route", "evnts", good},
		"takes one file with":                                {"--route", "events", good, good},
		"reading the record's value: open /nowhere":          {"--route", "events", "/nowhere"},
		"--send and --response are two ways":                 {"--route", "events", "--send", "--response", good, good},
		"--message is tried instead of a file":               {"--message", "1", good},
		"--key belongs to a record from a file":              {"--message", "1", "--key", "k"},
		"--header: \"x\" is not name=value":                  {"--route", "events", "--header", "x", good},
		"--timestamp: \"soon\" is not a time; give":          {"--route", "events", "--timestamp", "soon", good},
		"--partition and --offset can't be below 0":          {"--route", "events", "--partition", "-1", good},
		"--topic is missing: route wide":                     {"--route", "wide", good},
		"--response: open /nowhere":                          {"--route", "events", "--response", "/nowhere", good},
		"answer-1:1:12: verdict: no field has this name":     {"--route", "events", "--response", s.file("answer-1", "{error: x, verdict: y}"), good},
		"answer-2:1: \"HTTP/1.1\" is no status line":         {"--route", "events", "--response", s.file("answer-2", "HTTP/1.1"), good},
		"answer-3:1: \"OK\" is no status;":                   {"--route", "events", "--response", s.file("answer-3", "HTTP/1.1 OK\n\n"), good},
		"answer-4: the headers can't be read":                {"--route", "events", "--response", s.file("answer-4", "HTTP/1.1 200 OK\nno header\n\n"), good},
		"answer-5:1:1: needs status, or error":               {"--route", "events", "--response", s.file("answer-5", "{body: x}"), good},
		"answer-6:1:1: the file is empty; it needs at least": {"--route", "events", "--response", s.file("answer-6", ""), good},
		"FERRY_DATABASE_URL: is not set":                     {"--message", "1"},
	} {
		stdout, stderr, code := forwarder(t, s.env, append([]string{"try"}, args...)...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") > 2 {
			t.Errorf("%v: exit %d, want %s\n%s%s", args, code, want, stdout, stderr)
		}
	}
	for want, env := range map[string][]string{
		"the environment variable TOKEN is not set": s.env[:2],
		"set FERRY_ROUTES to its path":              {"FERRY_ROUTES=/nowhere"},
	} {
		if _, stderr, code := forwarder(t, env, "try", "--route", "events", good); code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("exit %d\n%s", code, stderr)
		}
	}
}

func TestTryReadsStdin(t *testing.T) {
	t.Parallel()
	s := newTryScene(t, "https://api.example.com")
	cmd := exec.Command(binaries.Path(t, "forwarder"), "try", "--route", "wide", "--topic", "wide-1", "--json", "-")
	cmd.Env, cmd.Stdin = s.env, strings.NewReader("[1.10]\n")
	out, err := cmd.Output()
	var r struct {
		Request struct{ Body string }
		Value   json.RawMessage
	}
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil || r.Request.Body != "[1.10]\n" || !strings.Contains(string(r.Value), "1.10") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestTrySends(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Header()["Date"] = nil
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		_, _ = w.Write([]byte(`{"result":0,"code":"` + r.Header.Get("Idempotency-Key") + `"}`))
	}))
	t.Cleanup(platform.Close)
	s := newTryScene(t, platform.URL)
	good := s.file("good.json", `{"id":"m-1"}`)
	stdout, stderr, code := forwarder(t, s.env, "try", "--route", "events", "--timestamp", "2026-01-02T03:04:05Z", "--send", good)
	s.golden("try-send.txt", stdout, stderr, code)
	if requests.Load() != 1 {
		t.Errorf("%d requests", requests.Load())
	}
	r := s.report(0, "--route", "events", "--send", good)
	if v := r["verdict"].(map[string]any); r["sent"] != true || v["verdict"] != "delivered" || v["by"] != "rule" || v["reason"] != "taken" || v["error_code"] != "events/m-1" {
		t.Errorf("%v", r)
	}
	noise := s.file("noise.json", `{"kind":"noise"}`)
	if _, stderr, code := forwarder(t, s.env, "try", "--route", "events", "--send", noise); code != 1 || !strings.Contains(stderr, "nothing was sent") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	s.report(1, "--route", "events", "--send", s.file("bad.json", "{"))
	if requests.Load() != 2 {
		t.Errorf("%d requests", requests.Load())
	}
	platform.Close()
	r = s.report(0, "--route", "events", "--send", good)
	if v := r["verdict"].(map[string]any); v["verdict"] != "hold" || v["by"] != "auto" || r["response"].(map[string]any)["status"] != nil {
		t.Errorf("%v", r)
	}
}

// A stored message is tried as it is, sent if that is asked for, and stays as it was.
func TestTryStoredMessages(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var keys []string
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		w.Header()["Date"] = nil
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(platform.Close)
	d := newReplayScene(t)
	s := &tryScene{T: t, dir: d.dir, env: append(d.env, "PLATFORM="+platform.URL)}
	d.save("events", message.IngestStored, "a", "both", "7")
	d.save("orders", message.IngestStored, "both")
	d.save("gone", message.IngestStored, "g")
	d.settle(message.StatusDelivered, "", "a")
	d.exec("UPDATE ferry.messages SET received_at = '2026-12-03T10:00:00Z', produced_at = NULL")
	before := d.value("SELECT json_agg(d ORDER BY message_id) FROM ferry.deliveries d")
	stdout, stderr, code := forwarder(t, s.env, "try", "--message", "key:a", "--send")
	s.golden("try-message.txt", stdout, stderr, code)
	r := s.report(0, "--message", "id:2")
	if m := r["message"].(map[string]any); m["status"] != "pending" || r["message_key"] != "both" || r["sent"] != false {
		t.Errorf("%v", r)
	}
	if r := s.report(0, "--message", "both", "--route", "orders", "--send"); r["route"] != "orders" {
		t.Errorf("%v", r)
	}
	for word, want := range map[string]string{
		"both": "means 2 messages", "nothing": "there is no message with key", "g": "is of route gone, which is not in",
	} {
		if _, stderr, code := forwarder(t, s.env, "try", "--message", word); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d\n%s", word, code, stderr)
		}
	}
	if after := d.value("SELECT json_agg(d ORDER BY message_id) FROM ferry.deliveries d"); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if n := d.value("SELECT count(*) FROM ferry.attempts"); n != "0" {
		t.Errorf("%s attempts", n)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(keys) != 2 || keys[0] != "events/a" || keys[1] != "orders/both" {
		t.Errorf("%q", keys)
	}
}

func TestCheckTests(t *testing.T) {
	t.Parallel()
	s := newTryScene(t, "https://api.example.com")
	const head = "env: {PLATFORM: https://other.example.com, TOKEN: open}\ncases:\n"
	good := s.file("good.yaml", head+"  - {name: a, route: events, input: {value: {id: 5, n: 1}}, expect: {request: {url: https://other.example.com/events/5, headers: {Authorization: Bearer open}}}}\n")
	bad := s.file("bad.yaml", "cases:\n  - {name: b, route: events, input: {value: {id: 5, n: 1}}, expect: {request: {headers: {Authorization: x}}}}\n")
	wrong := s.file("wrong.yaml", "cases:\n  - {name: b, rout: events}\n")
	unknown := s.file("unknown.yaml", head+"  - {name: b, route: evnts, input: {value: 1}, expect: {filter: true}}\n")
	for _, c := range []struct {
		env            []string
		args           []string
		code           int
		stdout, stderr string
	}{
		{s.env[:1], []string{good}, 0, "1 case, 3 checks, all good\n", ""},
		{s.env, []string{good, bad}, 1, s.dir + "/bad.yaml:2:105: b: request.headers.Authorization: wanted \"x\", got \"Bearer ${TOKEN}\"\n2 cases, 5 checks, 1 difference in 1 case\n", ""},
		{s.env, []string{wrong}, 2, "", "wrong.yaml:2:15: cases[b].rout: no field has this name; did you mean route?"},
		{s.env[:1], []string{unknown}, 2, "", "did you mean events?"},
		{s.env[:2], []string{bad}, 2, "", "the environment variable TOKEN is not set"},
		{s.env, []string{"/nowhere.yaml"}, 2, "", "reading the test cases /nowhere.yaml: no such file or directory; check the path"},
	} {
		args := []string{"check"}
		for _, path := range c.args {
			args = append(args, "--tests", path)
		}
		stdout, stderr, code := forwarder(t, c.env, args...)
		if code != c.code || stdout != c.stdout || !strings.Contains(stderr, c.stderr) || (c.stderr == "") != (stderr == "") {
			t.Errorf("%v: exit %d\n%s%s", args, code, stdout, stderr)
		}
	}
}
