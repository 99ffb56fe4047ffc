package route_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/forward/jq"
	"github.com/ferry-forward/ferry/internal/route"
)

// badCases are files of test cases, each named for what is wrong with it.
var badCases = map[string]string{
	"empty":             "",
	"two documents":     "cases: []\n---\ncases: []\n",
	"unknown field":     "casse: []\n",
	"no cases":          "env: {A: b}\n",
	"not a list":        "cases: {name: x}\n",
	"nothing":           "cases: [{name: x, route: r}]\n",
	"unknown fields":    "cases:\n  - name: x\n    route: r\n    inputs: {value: 1}\n    expect:\n      requests: {}\n      request: {bodytext: x}\n    responses:\n      - {stauts: 200, verdict: retry}\n",
	"no record":         "cases: [{name: x, route: r, expect: {filter: true}}]\n",
	"no value":          "cases: [{name: x, route: r, input: {key: k}, expect: {filter: true}}]\n",
	"two values":        "cases: [{name: x, route: r, input: {value: 1, value_base64: YQ==}, expect: {filter: true}}]\n",
	"null value":        "cases: [{name: x, route: r, input: {value: null}, expect: {filter: true}}]\n",
	"no file":           "cases: [{name: x, route: r, input: {value_file: nowhere.json}, expect: {filter: true}}]\n",
	"base64":            "cases: [{name: x, route: r, input: {value_base64: '???'}, expect: {filter: true}}]\n",
	"timestamp":         "cases: [{name: x, route: r, input: {value: 1, timestamp: yesterday}, expect: {filter: true}}]\n",
	"numbers":           "cases: [{name: x, route: r, input: {value: 1, partition: -1, offset: x, key: 5}, expect: {filter: true}}]\n",
	"header":            "cases: [{name: x, route: r, input: {value: 1, headers: {a: {b: c}, d: [[e]]}}, expect: {filter: true}}]\n",
	"headers":           "cases: [{name: x, route: r, input: {value: 1, headers: [a]}, expect: {filter: true}}]\n",
	"request and error": "cases: [{name: x, route: r, input: {value: 1}, expect: {error: unmappable, request: {method: PUT}}}]\n",
	"error":             "cases: [{name: x, route: r, input: {value: 1}, expect: {error: unmapable}}]\n",
	"filter and more":   "cases: [{name: x, route: r, input: {value: 1}, expect: {filter: false, message_key: k}}]\n",
	"two bodies":        "cases: [{name: x, route: r, input: {value: 1}, expect: {request: {body: 1, body_text: '1'}}}]\n",
	"method":            "cases: [{name: x, route: r, input: {value: 1}, expect: {request: {method: post}}}]\n",
	"twice":             "cases:\n  - {name: x, route: r, input: {value: 1}, expect: {filter: true}}\n  - {name: x, route: r, input: {value: 1}, expect: {filter: true}}\n",
	"key twice":         "cases:\n  - {name: x, name: y, route: r, input: {value: 1}, expect: {filter: true}}\n",
	"env":               "env: {1A: x, B: [c], \"file:/x\": y}\ncases: [{name: x, route: r, input: {value: 1}, expect: {filter: true}}]\n",
	"env list":          "env: [A]\ncases: [{name: x, route: r, input: {value: 1}, expect: {filter: true}}]\n",
	"answers":           "cases:\n  - name: x\n    route: r\n    responses:\n      - {verdict: retry}\n      - {status: 200}\n      - {status: 200, error: dns, verdict: hold}\n      - {error: incomplete, verdict: retry}\n      - {error: timeout, body: x, verdict: retry}\n      - {status: 2000, verdict: retry}\n      - {status: 200, verdict: delivred}\n      - {error: broken, verdict: retry}\n      - {status: 200, duration_ms: 1s, verdict: retry}\n",
	"yaml":              "cases: [\n",
}

func TestBadCases(t *testing.T) {
	t.Parallel()
	s := compiled(t, route.CasesSchema())
	refused := 0
	for name, text := range badCases {
		path := filepath.Join(t.TempDir(), "tests.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := route.LoadCases(path)
		var faults route.Faults
		if !errors.As(err, &faults) || c != nil {
			t.Errorf("%s: %v, %v", name, c, err)
			continue
		}
		for _, f := range faults {
			if f.Line < 1 || f.Column < 1 || strings.ContainsAny(f.Error(), "\n\r") {
				t.Errorf("%s: %v", name, f)
			}
		}
		golden(t, filepath.Join("testdata", "cases", strings.ReplaceAll(name, " ", "-")+".txt"), strings.ReplaceAll(err.Error(), filepath.Dir(path)+"/", "")+"\n")
		if v, err := instance(t, path); err == nil && s.Validate(v) != nil {
			refused++
		}
	}
	if refused < 14 {
		t.Errorf("only %d are refused by the schema", refused)
	}
	if _, err := route.LoadCases("/nowhere/tests.yaml"); err == nil || !strings.Contains(err.Error(), "/nowhere/tests.yaml") {
		t.Error(err)
	}
}

func TestGoodCases(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "tests.yaml")
	const text = `
env: {A: "${literal}", N: 5, "file:/run/secrets/x": s}
cases:
  - name: all
    route: r
    input:
      topic: t
      partition: 3
      offset: 42
      key: ''
      timestamp: 2026-01-02T03:04:05Z
      headers: {a: x, b: null, c: [1, true, null]}
      value_file: sub/value.json
    expect:
      message_key: k
      filter: true
      request: {method: PUT, url: "http://x/${A}", headers: {X-A: b, X-B: null}, body: {a: 1.10, b: [null, 12345678901234567890]}}
    responses:
      - {status: 200, headers: {Retry-After: 5, X: [a, b]}, body: {a: 1}, duration_ms: 7, verdict: delivered, reason: '', error_code: x}
      - {status: 200, error: too_large, body: text, verdict: retry}
  - {name: raw, route: r, input: {value: "${A}"}, expect: {error: undecodable}}
  - {name: bytes, route: r, input: {value_base64: "AP8="}, expect: {request: {body_text: ''}}}
  - {name: none, route: r, input: {tombstone: true}, expect: {filter: false}}
  - {name: empty, route: r, input: {value: ''}, expect: {filter: true}}
`
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"tests.yaml": text, "sub/value.json": "{}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := route.LoadCases(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c.Names(), []string{"A", "N", "file:/run/secrets/x"}) || c.Env["A"] != "${literal}" || c.Env["N"] != "5" {
		t.Errorf("%v", c.Env)
	}
	in := c.Cases[0].Input
	if in.Topic != "t" || in.Partition != 3 || in.Offset != 42 || in.Key == nil || *in.Key != "" || string(in.Value) != "{}\n" ||
		!in.Timestamp.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) || len(in.Headers) != 5 || in.Headers[1].Value != nil || *in.Headers[3].Value != "true" {
		t.Errorf("%+v", in)
	}
	e := c.Cases[0].Expect
	if body, err := jq.Marshal(e.Body.Value); err != nil || string(body) != `{"a":1.10,"b":[null,12345678901234567890]}` {
		t.Errorf("%s, %v", body, err)
	}
	if e.URL.Value != "http://x/${A}" || e.URL.Line != 17 || e.URL.Column != 35 || len(e.Headers) != 2 || e.Headers[1].Value != nil {
		t.Errorf("%+v", e)
	}
	r := c.Cases[0].Replies
	if r[0].Status != 200 || string(r[0].Body) != `{"a":1}` || r[0].Duration != 7*time.Millisecond || len(r[0].Headers) != 3 || !r[0].Reason.Set ||
		r[1].Error != "too_large" || string(r[1].Body) != "text" || r[1].Line != 20 {
		t.Errorf("%+v", r)
	}
	if string(c.Cases[1].Input.Value) != "${A}" || string(c.Cases[2].Input.Value) != "\x00\xff" || c.Cases[3].Input.Value != nil || c.Cases[4].Input.Value == nil {
		t.Errorf("%+v", c.Cases)
	}
	for _, p := range []string{path, "../../examples/parking/tests.yaml"} {
		if v, err := instance(t, p); err != nil {
			t.Error(err)
		} else if err := compiled(t, route.CasesSchema()).Validate(v); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func TestCasesOfUnknownRoutes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tests.yaml")
	if err := os.WriteFile(path, []byte("cases:\n  - name: x\n    route: vehicle-evnt\n    input: {value: 1}\n    expect: {filter: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := route.LoadCases(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := route.Load("../../examples/parking/routes.yaml", lookup)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(f); err == nil || !strings.HasSuffix(err.Error(), `tests.yaml:3:12: cases[x].route: there is no route "vehicle-evnt" in ../../examples/parking/routes.yaml; it has vehicle-event, heartbeat; did you mean vehicle-event?`) {
		t.Error(err)
	}
}

func TestPlacesOfFields(t *testing.T) {
	t.Parallel()
	const text = `version: 1
vars: {t: "${A}"}
defaults:
  response:
    rules: [{when: .status == 200, then: retry}]
routes:
  - name: r
    topics: [x]
    filter: .a
    request:
      url: http://${A}/\(.a)/\(.b)
      headers:
        X-A.b: 'a ${A} \(.c)'
      body: |

        {a: .b,
         c: .d}
`
	if _, err := route.Parse("f.yaml", []byte(text), func(string) (string, bool) { return "very long value", true }); err == nil {
		t.Fatal("a host with blanks")
	}
	f, err := route.Parse("f.yaml", []byte(text), func(string) (string, bool) { return "long-value.example", true })
	if err != nil {
		t.Fatal(err)
	}
	r := f.Route("r")
	url := r.Request.URL.Source()
	for _, c := range []struct {
		field  string
		offset int
		want   string
	}{
		{"filter", 0, "f.yaml:9:13: routes[r].filter: x"},
		{"request.url", strings.Index(url, `\(.b)`), "f.yaml:11:30: routes[r].request.url: x"},
		{"request.headers.X-A.b", strings.Index("a long-value.example \\(.c)", `\`), "f.yaml:13:24: routes[r].request.headers.X-A.b: x"},
		{"request.body", 1, "f.yaml:16:9: routes[r].request.body: x"},
		{"request.body", 10, "f.yaml:17:10: routes[r].request.body: x"},
		{"response.rules[0].when", 0, "f.yaml:5:20: defaults.response.rules[0].when: x"},
		{"response.rules[7].when", 0, "f.yaml: routes[r].response.rules[7].when: x"},
		{"message_key", 0, "f.yaml: routes[r].message_key: x"},
	} {
		if got := f.FaultAt(r, c.field, c.offset, "x").Error(); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
	if got := f.FaultAt(r, "filter", 0, "it is long-value.example").Message; got != "it is ${A}" {
		t.Error(got)
	}
	f.Reveal("A")
	if got := f.FaultAt(r, "filter", 0, "it is long-value.example").Message; got != "it is long-value.example" {
		t.Error(got)
	}
	if got := r.TextOf("request.headers.X-A.b"); got != `a ${A} \(.c)` {
		t.Error(got)
	}
}

func TestMarkedFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("from-file\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := "version: 1\nvars: {t: \"${A}\", f: \"${file:" + path + "}\"}\nroutes:\n  - name: r\n    topics: [\"${T}\"]\n    http: {timeout: \"${D}\"}\n" +
		"    request: {url: \"http://${A}/x\", body: '[$vars.t, $vars.f]'}\n"
	env := map[string]string{"A": "value-of-a", "T": "topic", "D": "7s"}
	f, err := route.Parse("f.yaml", []byte(text), func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	secrets := f.Secrets()
	if len(secrets) != 4 || secrets[1] != (route.Secret{Reference: "${file:" + path + "}", Value: "from-file", Cut: "\r\n"}) {
		t.Errorf("%+v", secrets)
	}
	if name, file := secrets[1].Name(); name != path || !file {
		t.Error(name, file)
	}
	clear(env) // and no file is read again
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	marked, err := f.Marked(func(s route.Secret) string { return "marked" + s.Value[:3] })
	if err != nil {
		t.Fatal(err)
	}
	r := marked.Route("r")
	if r.Topics[0] != "topic" || r.HTTP.Timeout != 7*time.Second || r.Vars["t"] != "markedval" || r.Vars["f"] != "markedfro" || r.Request.URL.Source() != "http://markedval/x" {
		t.Errorf("%+v", r)
	}
	if f.Route("r").Vars["t"] != "value-of-a" {
		t.Error("the file itself is marked")
	}
}
