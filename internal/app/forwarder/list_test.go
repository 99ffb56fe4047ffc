package forwarder_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ferry-forward/ferry/internal/message"
)

// listed fills a scene with a message of each kind.
func listed(t *testing.T) *replayScene {
	t.Helper()
	s := newReplayScene(t)
	s.route(strings.ReplaceAll(replayRoutes, `/x"}`, `/x", headers: {X-Token: "${TOKEN}"}}`))
	s.save("events", message.IngestStored, "e0", "e1", "e2", "e3", "odd key\x1b[2J")
	s.save("orders", message.IngestStored, "o5", "o6")
	s.save("gone", message.IngestStored, "g7")
	s.save("events", message.IngestStored, "e0") // another payload
	s.save("events", message.IngestUnstorable, "e9")
	s.settle(message.StatusDelivered, "", "e0")
	s.settle(message.StatusFailed, message.Rejected, "e1")
	s.settle(message.StatusFailed, message.Exhausted, "o5")
	s.settle(message.StatusPending, "", "e3")
	s.timeless()
	s.exec(`UPDATE ferry.deliveries SET http_status = 400, error_code = '998', attempts = 1, detail = 'refused by the platform'
		WHERE message_id IN (SELECT id FROM ferry.messages WHERE message_key = 'e1')`)
	s.exec(`UPDATE ferry.failures SET http_status = 400, error_code = '998' WHERE message_id IN (SELECT id FROM ferry.messages WHERE message_key = 'e1')`)
	// A destination that answers with what it was sent: a token of the route.
	s.exec(`UPDATE ferry.deliveries SET http_status = 503, attempts = 5, error = 'status 503: ` + "geheim" + "\n\n" + strings.Repeat("long ", 20) + `'
		WHERE message_id IN (SELECT id FROM ferry.messages WHERE message_key = 'o5')`)
	return s
}

// route writes another route file.
func (s *replayScene) route(text string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "routes.yaml"), []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

// run runs the forwarder, and returns what a person sees.
func (s *replayScene) run(args ...string) string {
	s.Helper()
	stdout, stderr, code := forwarder(s.T, s.env, args...)
	out := fmt.Sprintf("$ forwarder %s\n%s", strings.Join(args, " "), stdout)
	for line := range strings.Lines(stderr) {
		out += "stderr: " + line
	}
	if code != 0 {
		out += fmt.Sprintf("exit code %d\n", code)
		if stdout != "" || strings.Count(stderr, "\n") != 1 {
			s.Errorf("%v: exit %d with more than one line:\n%s%s", args, code, stdout, stderr)
		}
	}
	return strings.ReplaceAll(out, s.dir+"/", "") + "\n"
}

func TestList(t *testing.T) {
	t.Parallel()
	s := listed(t)
	var all strings.Builder
	for _, args := range []string{
		"",
		"--limit 3", "--limit 3 --after 8", "--limit 3 --after id:2", "--limit 10 --key-prefix e",
		"--route orders", "--route orders --route events --status failed", "--route gone",
		"--status pending", "--status delivered", "--reason conflict", "--reason crashed",
		"--since 2026-12-03T10:03:00Z --until 2026-12-03T10:05:00Z", "--key-prefix e0#",
		"--http-status 400", "--http-status 503", "--error-code 998", "--topic t --partition 0 --from-offset 3 --to-offset 5", "--topic other",
		// Wrong use.
		"--route event", "--status done", "--reason late", "--status pending --reason rejected", "--since yesterday",
		"--since 2026-12-03T10:03:00Z --until 2026-12-03T10:03:00Z", "--http-status 4xx", "--partition 0", "--topic t --partition -1", "--topic t --from-offset 3",
		"--topic t --partition 0 --from-offset 3 --to-offset 3", "--limit 0", "--limit",
		"--after x", "e0", "--fast", "--key-prefix \xff",
	} {
		all.WriteString(s.run(append([]string{"list"}, strings.Fields(args)...)...))
	}
	golden(t, "list.txt", all.String())
	if _, stderr, code := forwarder(t, append(routes(t, replayRoutes), away), "list"); code != 3 ||
		strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "FERRY_DATABASE_URL") {
		t.Errorf("without a database: exit %d\n%s", code, stderr)
	}
}

func TestListJSON(t *testing.T) {
	t.Parallel()
	s := listed(t)
	schema, err := jsonschema.NewCompiler().Compile("../../../docs/schemas/list.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := forwarder(t, s.env, "list", "--json")
	if code != 0 || stderr != "" || strings.Count(stdout, "\n") != 10 {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	for line := range strings.Lines(stdout) {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s%v", line, err)
		}
		object := v.(map[string]any)
		if n := len(object); n != 18 {
			t.Errorf("%d columns: %s", n, line)
		}
		id := object["message_id"].(json.Number).String()
		for column, v := range object {
			name := column
			if name == "offset" {
				name = `"offset"`
			}
			want := s.value(`SELECT to_jsonb(` + name + `) FROM ferry.message_status WHERE message_id = ` + id)
			got, _ := json.Marshal(v)
			switch {
			case strings.HasSuffix(column, "_at") && v != nil: // Z and +00:00
				if s.value(fmt.Sprintf("SELECT %s = '%s' FROM ferry.message_status WHERE message_id = %s", name, v, id)) != "true" {
					t.Errorf("message %s: %s is %s, want %s", id, column, got, want)
				}
			case column == "error" && v != nil: // masked
			case want == "" && v == nil:
			default:
				var a, b any
				if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(want), &b) != nil || a != b {
					t.Errorf("message %s: %s is %s, want %s", id, column, got, want)
				}
			}
		}
	}
	// Page by page.
	var paged string
	after := "0"
	for range 10 {
		args := []string{"list", "--json", "--limit", "4"}
		if after != "0" {
			args = append(args, "--after", after)
		}
		part, stderr, code := forwarder(t, s.env, args...)
		if code != 0 {
			t.Fatal(stderr)
		}
		paged += part
		_, next, more := strings.Cut(stderr, "--after ")
		if !more {
			break
		}
		after = strings.TrimSpace(next)
	}
	if paged != stdout {
		t.Errorf("page by page:\n%s\nat once:\n%s", paged, stdout)
	}
	if v, err := jsonschema.UnmarshalJSON(strings.NewReader(`{"message_id":1}`)); err != nil || schema.Validate(v) == nil {
		t.Error("the schema takes anything")
	}
}
