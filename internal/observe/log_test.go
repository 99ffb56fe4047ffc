package observe_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/observe"
)

// buffer is a writer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) lines(t *testing.T) []map[string]any {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []map[string]any
	for line := range strings.Lines(b.b.String()) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, one)
	}
	return all
}

func newLog(t *testing.T, o observe.LogOptions) (*observe.Log, *buffer) {
	t.Helper()
	var out buffer
	log, err := observe.NewLog(&out, o)
	if err != nil {
		t.Fatal(err)
	}
	return log, &out
}

func TestLogLine(t *testing.T) {
	t.Parallel()
	log, out := newLog(t, observe.LogOptions{Level: "info", Format: "json"})
	log.Debug("not this")
	log.With("route", "a").Info("delivered", "message_id", int64(7), "duration", 1500*time.Millisecond,
		"error", errors.New("it is"), slog.Group("g", slog.Bool("b", true)))
	lines := out.lines(t)
	if len(lines) != 1 {
		t.Fatalf("lines: %v", lines)
	}
	at, err := time.Parse(time.RFC3339Nano, lines[0]["time"].(string))
	if err != nil || time.Since(at) > time.Minute {
		t.Errorf("time: %v, %v", lines[0]["time"], err)
	}
	delete(lines[0], "time")
	want := map[string]any{
		"level": "info", "message": "delivered", "route": "a", "message_id": 7.0, "duration": "1.5s", "error": "it is", "g.b": true,
	}
	for k, v := range want {
		if lines[0][k] != v {
			t.Errorf("%s: got %v, want %v", k, lines[0][k], v)
		}
	}
	if len(lines[0]) != len(want) {
		t.Errorf("line: %v", lines[0])
	}
}

func TestLogConsole(t *testing.T) {
	t.Parallel()
	log, out := newLog(t, observe.LogOptions{Level: "debug", Format: "console"})
	log.Warn("slow", "route", "a")
	if got := out.b.String(); !strings.Contains(got, " WRN slow route=a\n") {
		t.Errorf("got %q", got)
	}
}

func TestLogRefusesWrongOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []observe.LogOptions{{Level: "loud", Format: "json"}, {Level: "info", Format: "xml"}} {
		if _, err := observe.NewLog(&buffer{}, o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

func TestLogHidesSecrets(t *testing.T) {
	t.Parallel()
	redact := func(s string) string { return strings.ReplaceAll(s, "s3cret-heim", "${NAME}") }
	log, out := newLog(t, observe.LogOptions{Level: "info", Format: "json", Redact: redact})
	log.Info("x", "error", "s3cret-heim")
	for _, secret := range []any{
		"postgres://u:geheim@h/d?sslmode=x", errors.New("it said s3cret-heim"), errors.New(`Post "https://u:geheim@h/p?token=geheim": refused`),
		"host=h password=geheim", "host=h password='ge \\' heim geheim'", "https://geheim@h/p",
		[]string{"https://h/p?token=geheim"},
		slog.GroupValue(slog.String("x", "https://h?geheim")),
	} {
		log.Info("x", "v", secret)
	}
	log.With("v", "https://h?geheim").Info("https://h?geheim")
	for _, line := range out.lines(t) {
		text, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "heim") {
			t.Errorf("secret in %s", text)
		}
	}
	log.Info("kept", "v", "https://h:8080/p/q and a=b")
	lines := out.lines(t)
	if got := lines[len(lines)-1]["v"]; got != "https://h:8080/p/q and a=b" {
		t.Errorf("got %q", got)
	}
}

func TestRepeatsAreSaidOnceWithACount(t *testing.T) {
	t.Parallel()
	log, out := newLog(t, observe.LogOptions{Level: "info", Format: "json"})
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for i := range 25 {
				log.Warn("no answer", "route", "a", "message_id", i)
			}
		})
	}
	wait.Wait()
	log.Warn("no answer", "route", "b")
	log.With("route", "c").Warn("no answer")
	log.Info("well")
	log.Info("well")
	log.Plain().Warn("no answer", "route", "b")
	if got := len(out.lines(t)); got != 6 {
		t.Fatalf("%d lines: %v", got, out.lines(t))
	}
	log.Flush()
	lines := out.lines(t)
	if len(lines) != 7 || lines[6]["repeated"] != 99.0 || lines[6]["route"] != "a" {
		t.Errorf("lines: %v", lines)
	}
	log.Flush()
	if got := len(out.lines(t)); got != 7 {
		t.Errorf("a second flush said more: %d", got)
	}
}

func TestRepeatsAreSaidAgainAfterTheInterval(t *testing.T) {
	t.Parallel()
	log, out := newLog(t, observe.LogOptions{Level: "info", Format: "json", Repeat: time.Minute})
	start := time.Now()
	at := func(d time.Duration, level slog.Level, text string) {
		r := slog.NewRecord(start.Add(d), level, text, 0)
		if err := log.Handler().Handle(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	at(0, slog.LevelError, "away")
	at(10*time.Second, slog.LevelError, "away")
	at(20*time.Second, slog.LevelError, "away")
	at(61*time.Second, slog.LevelInfo, "other") // says what is due: away, repeated 2
	at(62*time.Second, slog.LevelError, "away") // held back
	at(200*time.Second, slog.LevelError, "away")
	var got []string
	for _, line := range out.lines(t) {
		text := line["message"].(string)
		if n, ok := line["repeated"].(float64); ok {
			text += strings.Repeat("+", int(n))
		}
		got = append(got, text)
	}
	if want := "away away++ other away+"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", strings.Join(got, " "), want)
	}
}
