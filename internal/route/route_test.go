package route_test

import (
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/forward/decode"
	"github.com/ferry-forward/ferry/internal/forward/jq"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

var update = flag.Bool("update", false, "write the golden files anew")

// environment of the test files. The secret would be found in any message that shows it.
func lookup(name string) (string, bool) {
	v, ok := map[string]string{
		"SECRET": `hunter2"\(secret`, "URL": "http://platform:8080/api", "NAME": "park", "CONCURRENCY": "30", "AGE": "36h", "ACCESS_NAME": "an",
		"ACCESS_PWD": "very-secret-pwd", "PLATFORM_URL": "http://platform.example:8080/gateway",
	}[name]
	return v, ok
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with -update", err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant, by %s:\n%s", got, path, want)
	}
}

func files(t *testing.T, folder string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files in testdata/%s: %v", folder, err)
	}
	return paths
}

func TestBadFiles(t *testing.T) {
	t.Parallel()
	for _, path := range files(t, "bad") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			f, err := route.Parse("routes.yaml", data, lookup)
			var faults route.Faults
			if !errors.As(err, &faults) || f != nil {
				t.Fatalf("got %v, %v", f, err)
			}
			for _, fault := range faults {
				if strings.ContainsAny(fault.Error(), "\n\r") {
					t.Errorf("more than one line: %q", fault.Error())
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("shows a secret:\n%v", err)
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".txt", err.Error()+"\n")
		})
	}
}

func TestGoodFiles(t *testing.T) {
	t.Parallel()
	for _, path := range append(files(t, "good"), "../../examples/parking/routes.yaml") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			f, err := route.Load(path, lookup)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			if err := f.Summary(&b); err != nil {
				t.Fatal(err)
			}
			for _, secret := range []string{"hunter2", "platform", "very-secret"} {
				if strings.Contains(b.String(), secret) {
					t.Errorf("the summary shows %s", secret)
				}
			}
			name := strings.TrimSuffix(filepath.Base(path), ".yaml")
			if strings.HasPrefix(path, "..") {
				name = "parking"
			}
			golden(t, filepath.Join("testdata", "good", name+".txt"), b.String())
		})
	}
}

func load(t *testing.T, name string) *route.File {
	t.Helper()
	f, err := route.Load(filepath.Join("testdata", "good", name+".yaml"), lookup)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	r := load(t, "minimal").Routes[0]
	if r.Name != "a" || !reflect.DeepEqual(r.Topics, []string{"t"}) || r.MessageKey != nil || r.Filter != nil || r.Tombstones != route.TombstonesSkip ||
		r.Decode != (decode.Format{Type: decode.JSON}) || r.JobSize != 20 || r.Concurrency != 100 {
		t.Errorf("route: %+v", r)
	}
	if r.Request.Method != http.MethodPost || r.Request.IdempotencyHeader != "Idempotency-Key" || r.Request.Body != nil || r.Request.Headers != nil {
		t.Errorf("request: %+v", r.Request)
	}
	if want := (route.Response{}); !reflect.DeepEqual(r.Response, want) {
		t.Errorf("response: %+v", r.Response)
	}
	if want := (route.Retry{
		MaxAttempts: 5, Initial: 5 * time.Second, Multiplier: 2, Max: 300 * time.Second, Jitter: 0.2, MaxAge: 72 * time.Hour, RetryAfterMax: time.Hour,
	}); r.Retry != want {
		t.Errorf("retry: %+v", r.Retry)
	}
	if want := (route.HTTP{
		Timeout: 10 * time.Second, ConnectTimeout: 3 * time.Second, MaxResponseBytes: 65536, MaxConnectionAge: 5 * time.Minute, MaxIdleConns: 100,
	}); r.HTTP != want {
		t.Errorf("http: %+v", r.HTTP)
	}
	if want := (route.Retention{Delivered: 168 * time.Hour, Failed: 720 * time.Hour}); r.Retention != want {
		t.Errorf("retention: %+v", r.Retention)
	}
}

func TestEverything(t *testing.T) {
	t.Parallel()
	f := load(t, "everything")
	r, raw := f.Routes[0], f.Routes[1]
	if r.Concurrency != 30 || raw.Concurrency != 3 || raw.HTTP.MaxIdleConns != 3 || raw.HTTP.ConnectTimeout != 2*time.Second {
		t.Errorf("concurrency %d, %d; idle %d; connect %v", r.Concurrency, raw.Concurrency, raw.HTTP.MaxIdleConns, raw.HTTP.ConnectTimeout)
	}
	wantRetry := route.Retry{
		MaxAttempts: 7, Initial: time.Second, Multiplier: 3, Max: 10 * time.Minute, Jitter: 0, MaxAge: 36 * time.Hour, RetryAfterMax: 30 * time.Minute,
	}
	if r.Retry != wantRetry || raw.Retry.MaxAttempts != 7 || raw.Retry.Multiplier != 2 {
		t.Errorf("retry: %+v, %+v", r.Retry, raw.Retry)
	}
	if want := (decode.Format{Type: decode.JSON, StripWireHeader: true}); r.Decode != want || raw.Decode.Type != decode.Bytes {
		t.Errorf("decode: %+v, %+v", r.Decode, raw.Decode)
	}
	if r.Response.Otherwise != message.Retry || raw.Response.Otherwise != message.Retry || len(r.Response.Rules) != 2 || r.Response.Rules[1].Reason != "gone" ||
		!r.Response.RulesReadBody || raw.Response.RulesReadBody {
		t.Errorf("response: %+v, %+v", r.Response, raw.Response)
	}
	if want := (route.HTTP{
		Timeout: 20 * time.Second, ConnectTimeout: 5 * time.Second, MaxResponseBytes: 1 << 20, MaxConnectionAge: 90 * time.Second, MaxIdleConns: 10,
	}); r.HTTP != want {
		t.Errorf("http: %+v", r.HTTP)
	}
	if !reflect.DeepEqual(r.Request.ForwardHeaders, []string{"x-*", "traceparent"}) || r.Request.IdempotencyHeader != "X-Request-Id" || r.Request.Method != http.MethodPut {
		t.Errorf("request: %+v", r.Request)
	}
	wantVars := map[string]any{
		"name": "park", "password": `hunter2"\(secret`, "from_file": "from a file", "literal": "${NAME} and ${x",
		"numbers": []any{json.Number("1.10"), json.Number("1e2"), json.Number("12345678901234567890"), json.Number("16"), json.Number("-3")},
		"flags":   map[string]any{"on": true, "off": false, "nothing": nil},
	}
	if !reflect.DeepEqual(r.Vars, wantVars) {
		t.Errorf("vars: %#v", r.Vars)
	}

	in := map[string]any{"parkCode": "P 1"}
	env := jq.NewEnv(nil, jq.EnvOptions{Vars: r.Vars})
	if url, err := r.Request.URL.Expand(t.Context(), in, env); err != nil || url != `http://platform:8080/api/lots/P%201/events?token=hunter2"\(secret` {
		t.Errorf("url: %s, %v", url, err)
	}
	if h, err := r.Request.Headers[1].Value.Expand(t.Context(), in, env); err != nil || h != `Bearer hunter2"\(secret` || r.Request.Headers[1].Name != "Authorization" {
		t.Errorf("header: %s, %v", h, err)
	}
	if s := f.Redact(`POST http://platform:8080/api/x: Bearer hunter2"\(secret`); s != "POST ${URL}/x: Bearer ${SECRET}" {
		t.Errorf("redacted: %s", s)
	}
	if got := f.EnvNames(); !reflect.DeepEqual(got, []string{"AGE", "CONCURRENCY", "NAME", "SECRET", "URL"}) {
		t.Errorf("names: %v", got)
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	f := load(t, "everything")
	if got := f.Topics(); !reflect.DeepEqual(got, []string{"device-vehicle-event", "other.topic_1"}) {
		t.Errorf("topics: %v", got)
	}
	if both, one, none := f.ForTopic("device-vehicle-event"), f.ForTopic("other.topic_1"), f.ForTopic("x"); len(both) != 2 || len(one) != 1 || none != nil {
		t.Errorf("for topics: %v %v %v", both, one, none)
	}
	if f.Route("raw") != f.Routes[1] || f.Route("x") != nil || !reflect.DeepEqual(f.Names(), []string{"vehicle-event", "raw"}) {
		t.Errorf("routes by name: %v", f.Names())
	}
	if f.JobTime() != 45*time.Second || f.RescueAfter() != time.Minute {
		t.Errorf("job time %v, rescue after %v", f.JobTime(), f.RescueAfter())
	}
	if f := load(t, "minimal"); f.JobTime() != 25*time.Second || f.RescueAfter() != 40*time.Second {
		t.Errorf("by default: job time %v, rescue after %v", f.JobTime(), f.RescueAfter())
	}
}

func TestAnchors(t *testing.T) {
	t.Parallel()
	f := load(t, "anchors")
	for i, want := range []string{"PUT http://localhost/a", "PUT http://localhost/b", "PUT http://localhost/a"} {
		if got := f.Routes[i]; got.Target() != want || got.Retry.MaxAttempts != 3 {
			t.Errorf("route %s: %s, %d attempts", got.Name, got.Target(), got.Retry.MaxAttempts)
		}
	}
}

func TestLoadMissingFile(t *testing.T) {
	t.Parallel()
	_, err := route.Load("testdata/nowhere.yaml", lookup)
	if want := "reading the route file testdata/nowhere.yaml: no such file or directory; set FERRY_ROUTES to its path"; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, folder := range []string{"bad", "good"} {
		paths, _ := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
		for _, path := range paths {
			if b, err := os.ReadFile(path); err == nil {
				f.Add(b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := route.Parse("routes.yaml", data, lookup)
		if err == nil {
			if err := file.Summary(&strings.Builder{}); err != nil {
				t.Fatal(err)
			}
			return
		}
		var faults route.Faults
		if !errors.As(err, &faults) || len(faults) == 0 {
			t.Fatalf("%T %v", err, err)
		}
		for _, fault := range faults {
			if fault.Line < 1 || fault.Column < 1 {
				t.Fatalf("no place: %v", fault)
			}
		}
	})
}
