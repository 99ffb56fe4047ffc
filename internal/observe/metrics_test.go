package observe_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/observe"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func scrape(t *testing.T, m *observe.Metrics, accept string) (contentType, body string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, r)
	text, err := io.ReadAll(w.Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("scrape: %d, %v", w.Code, err)
	}
	return w.Header().Get("Content-Type"), string(text)
}

func wantLines(t *testing.T, body string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(body, "\n"+line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
}

func TestSeriesExistFromTheStart(t *testing.T) {
	t.Parallel()
	o := observe.MetricsOptions{Version: "1.2.3", Commit: "abc", Routes: []string{"a", "b"}, Topics: []string{"t"}, DeadLetters: []string{"a"}}
	in := observe.NewMetrics(o)
	in.ServeIngest()
	_, body := scrape(t, in, "")
	wantLines(t, body,
		`ferry_ingest_records_total{result="stored",topic="t"} 0`, `ferry_ingest_records_total{result="unstorable",topic="t"} 0`,
		`ferry_key_fallback_total{route="b"} 0`, `ferry_position_rewinds_total 0`, `ferry_ingest_batch_seconds_count 0`)
	for _, name := range []string{"ferry_build_info{", `version="1.2.3"`, "go_goroutines", "process_start_time_seconds"} {
		if !strings.Contains(body, name) {
			t.Errorf("no %s", name)
		}
	}
	if strings.Contains(body, "ferry_attempts_total") {
		t.Error("the ingester serves the forwarder's series")
	}

	out := observe.NewMetrics(o)
	out.ServeForward()
	_, body = scrape(t, out, "")
	wantLines(t, body,
		`ferry_attempts_total{code="200",route="a",verdict="delivered"} 0`, `ferry_attempts_total{code="400",route="b",verdict="reject"} 0`,
		`ferry_attempts_total{code="timeout",route="a",verdict="retry"} 0`, `ferry_attempts_total{code="429",route="a",verdict="hold"} 0`,
		`ferry_request_seconds_count{route="a"} 0`, `ferry_end_to_end_seconds_count{route="b"} 0`,
		`ferry_worker_slots{route="a",state="free"} 0`, `ferry_connections_total{reused="true",route="a"} 0`)
	wantLines(t, body, `ferry_dead_letters_total{result="delivered_without_value",route="a"} 0`, `ferry_dead_letters_total{result="no_topic",route="a"} 0`)
	if strings.Contains(body, `ferry_dead_letters_total{result="delivered",route="b"}`) {
		t.Error("route b has no dead letters, and has their series")
	}
	wantLines(t, body, `ferry_breaker_state{route="a",state="healthy"} 1`, `ferry_breaker_state{route="a",state="open"} 0`)
	out.Breaker("a", message.BreakerOpen)
	_, body = scrape(t, out, "")
	wantLines(t, body, `ferry_breaker_state{route="a",state="healthy"} 0`, `ferry_breaker_state{route="a",state="open"} 1`,
		`ferry_breaker_state{route="b",state="healthy"} 1`)
	if strings.Contains(body, "ferry_ingest_") {
		t.Error("the forwarder serves the ingester's series")
	}
}

func TestMetricsCount(t *testing.T) {
	t.Parallel()
	m := observe.NewMetrics(observe.MetricsOptions{Routes: []string{"a"}, Topics: []string{"t"}})
	m.ServeIngest()
	m.ServeForward()
	m.IngestRecords("t", message.IngestStored, 3)
	m.IngestBatch(20 * time.Millisecond)
	m.IngestLag("t", 1, 5)
	m.IngestLag("t", 2, 6)
	m.IngestGone("t", 2)
	m.KeyFallback("a")
	m.FilterError("a")
	m.PositionRewind()
	for _, code := range []string{"200", "999", "099", "timeout", "", "evil\nlabel"} {
		m.Attempt("a", message.Delivered, code)
	}
	m.Request("a", 3*time.Second)
	m.EndToEnd("a", -time.Second)
	m.Slots("a", 3, 100)
	m.Connection("a", true)
	_, body := scrape(t, m, "")
	wantLines(t, body,
		`ferry_ingest_records_total{result="stored",topic="t"} 3`, `ferry_ingest_batch_seconds_bucket{le="0.025"} 1`,
		`ferry_ingest_lag{partition="1",topic="t"} 5`, `ferry_key_fallback_total{route="a"} 1`, `ferry_filter_errors_total{route="a"} 1`, `ferry_position_rewinds_total 1`,
		`ferry_attempts_total{code="200",route="a",verdict="delivered"} 1`,
		`ferry_attempts_total{code="other",route="a",verdict="delivered"} 4`,
		`ferry_attempts_total{code="timeout",route="a",verdict="delivered"} 1`,
		`ferry_request_seconds_sum{route="a"} 3`, `ferry_end_to_end_seconds_sum{route="a"} 0`,
		`ferry_worker_slots{route="a",state="used"} 3`, `ferry_worker_slots{route="a",state="free"} 97`,
		`ferry_connections_total{reused="true",route="a"} 1`)
	if strings.Contains(body, `ferry_ingest_lag{partition="2"`) {
		t.Error("the lag of a partition that is gone is still served")
	}
	if problems, err := testutil.GatherAndLint(m.Registry()); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	if kind, _ := scrape(t, m, "application/openmetrics-text; version=1.0.0"); !strings.HasPrefix(kind, "application/openmetrics-text") {
		t.Errorf("no OpenMetrics for who asks for it: %s", kind)
	}
}

func TestMessagesGauge(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	m := observe.NewMetrics(observe.MetricsOptions{Routes: []string{"a", "b"}})
	m.ServeMessages(func(context.Context) (map[string]observe.Counts, error) {
		calls.Add(1)
		return map[string]observe.Counts{"a": {Pending: 10, Delivered: 7, Failed: 1}, "old": {Pending: 2}}, nil
	}, quiet())
	m.InFlight("a", 4)
	m.InFlight("a", -1)
	m.InFlight("b", 2) // its rows are not counted yet
	for range 3 {
		_, body := scrape(t, m, "")
		wantLines(t, body,
			`ferry_messages{route="a",state="pending"} 7`, `ferry_messages{route="a",state="in_progress"} 3`,
			`ferry_messages{route="a",state="delivered"} 7`, `ferry_messages{route="a",state="failed"} 1`,
			`ferry_messages{route="b",state="pending"} 0`, `ferry_messages{route="b",state="in_progress"} 2`,
			`ferry_messages{route="b",state="delivered"} 0`, `ferry_messages{route="old",state="pending"} 2`)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("three scrapes asked the database %d times", n)
	}
}

func TestMessagesGaugeWithoutDatabase(t *testing.T) {
	t.Parallel()
	m := observe.NewMetrics(observe.MetricsOptions{Routes: []string{"a"}})
	m.ServeMessages(func(ctx context.Context) (map[string]observe.Counts, error) {
		if _, bounded := ctx.Deadline(); !bounded {
			return nil, errors.New("no deadline")
		}
		return nil, errors.New("away")
	}, quiet())
	_, body := scrape(t, m, "")
	wantLines(t, body, `ferry_messages{route="a",state="in_progress"} 0`)
	if strings.Contains(body, `state="delivered"`) {
		t.Error("counts are served that nobody read")
	}
}

func TestPool(t *testing.T) {
	t.Parallel()
	m := observe.NewMetrics(observe.MetricsOptions{})
	m.ServePool(func() observe.PoolStats {
		return observe.PoolStats{Acquired: 2, Idle: 3, Max: 10, Acquires: 99, AcquireTime: 1500 * time.Millisecond}
	})
	_, body := scrape(t, m, "")
	wantLines(t, body,
		`ferry_db_pool_connections{state="used"} 2`, `ferry_db_pool_connections{state="idle"} 3`, `ferry_db_pool_max_connections 10`,
		`ferry_db_pool_acquires_total 99`, `ferry_db_pool_acquire_seconds_total 1.5`)
}
