package e2e

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// rewrite replaces a text of the route file.
func (d *destinations) rewrite(from, to string) {
	d.t.Helper()
	text, err := os.ReadFile(d.routes)
	if err != nil || !strings.Contains(string(text), from) {
		d.t.Fatalf("%q in %s: %v", from, text, err)
	}
	d.writeRoutes(strings.ReplaceAll(string(text), from, to))
}

// number is the n of a key m<n>.
func number(key string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(key, "m"))
	return n
}

// Every status that a final answer can have, a reset and no answer at all, then 200: what is asked to come again is sent
// twice, what is rejected once.
func TestWholeStatusTable(t *testing.T) {
	t.Parallel()
	d := newDestinations(t, "table")
	d.rewrite("breaker: {", "breaker: {enabled: false, ") // whose verdicts depend on the other answers
	const first, reset, hang = 200, 600, 601
	d.at["table"].Answer(func(r *receivertest.Request) receivertest.Answer {
		switch status := first + number(r.Key); {
		case r.Nth > 1:
			return receivertest.Status(200)
		case status == reset:
			return receivertest.Reset()
		case status == hang:
			return receivertest.Hang()
		case status == 413:
			return receivertest.Answer{Status: 413, Body: "<html>too large</html>", Header: http.Header{"Content-Type": {"text/html"}}}
		default:
			return receivertest.Status(status)
		}
	})
	d.forwarder()
	d.store("table", hang-first+1)
	d.is(patience, "0", count+"status = 'pending'", "table")
	rows, err := d.pool.Query(t.Context(), `SELECT message_key, status || ' ' || coalesce(reason, '-') || ' ' || attempts || ' ' || requests
		FROM ferry.message_status JOIN ferry.deliveries USING (message_id, status, reason, attempts)
		UNION ALL SELECT message_key, m.status || ' - ' || m.attempts || ' ' || requests
		FROM ferry.message_status m JOIN ferry.deliveries USING (message_id) WHERE m.reason IS NULL`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	seen := 0
	for rows.Next() {
		var key, got string
		if err := rows.Scan(&key, &got); err != nil {
			t.Fatal(err)
		}
		seen++
		status := first + number(key)
		want := "delivered - 2 2"
		switch {
		case status < 300:
			want = "delivered - 1 1"
		case status == 429:
			want = "delivered - 1 2"
		case strings.Contains(" 400 405 406 410 411 413 414 415 422 501 ", fmt.Sprintf(" %d ", status)):
			want = "failed rejected 1 1"
		}
		if got != want {
			t.Errorf("%d: %s, want %s", status, got, want)
		}
	}
	if rows.Err() != nil || seen != hang-first+1 {
		t.Errorf("%d rows, %v", seen, rows.Err())
	}
	d.is(patience, "<html>too large</html>", `SELECT a.response FROM ferry.attempts a JOIN ferry.messages m ON m.id = a.message_id WHERE m.message_key = 'm213'`)
	// Failed for weeks: River has forgotten the jobs, Ferry has not forgotten the messages.
	if _, err := d.pool.Exec(t.Context(), `DELETE FROM ferry.river_job WHERE finalized_at IS NOT NULL`); err != nil {
		t.Fatal(err)
	}
	d.is(patience, "10", count+"status = 'failed' AND reason = 'rejected'", "table")
}

// Retry-After in every form, on 429 and on 503: a wait that is asked for is never undercut and costs no attempt; what is no
// valid Retry-After asks for nothing, so that a 503 with it counts.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	type ask struct {
		name   string
		values func() []string
		wait   time.Duration // at least
		valid  bool
	}
	fixed := func(v ...string) func() []string { return func() []string { return v } }
	asks := []ask{
		{"seconds", fixed("2"), 2 * time.Second, true},
		{"none", fixed("0"), 0, true},
		{"date", func() []string { return []string{in(3 * time.Second)} }, 2 * time.Second, true},
		{"past", fixed("Wed, 21 Oct 2015 07:28:00 GMT"), 0, true},
		{"negative", fixed("-1"), 0, false},
		{"fractional", fixed("1.5"), 0, false},
		{"garbage", fixed("soon"), 0, false},
		{"empty", fixed(""), 0, false},
		{"huge", fixed("99999999999999999999"), 3 * time.Second, true}, // capped
		{"twice", fixed("1", "2"), 2 * time.Second, true},
		{"twice, one of them garbage", fixed("soon", "2"), 2 * time.Second, true},
		{"without", fixed(), 0, false},
	}
	d := newDestinations(t, "asks")
	d.rewrite("breaker: {", "breaker: {enabled: false, ")
	d.rewrite("max_attempts: 5", "max_attempts: 5, retry_after_max: 3s")
	d.at["asks"].Answer(func(r *receivertest.Request) receivertest.Answer {
		if r.Nth > 1 {
			return receivertest.Status(200)
		}
		n := number(r.Key)
		a := receivertest.Status([]int{429, 503}[n%2])
		for _, v := range asks[n/2].values() {
			a = a.With("Retry-After", v)
		}
		return a
	})
	d.forwarder()
	d.store("asks", 2*len(asks))
	d.ends("asks")
	for key, requests := range d.at["asks"].ByKey() {
		n := number(key)
		a, status := asks[n/2], []int{429, 503}[n%2]
		if len(requests) != 2 {
			t.Errorf("%d %s: %d requests", status, a.name, len(requests))
			continue
		}
		if gap := requests[1].At.Sub(requests[0].At); gap < a.wait {
			t.Errorf("%d %s: sent again after %s", status, a.name, gap)
		}
		attempts := "1"
		if status == 503 && !a.valid {
			attempts = "2"
		}
		d.is(patience, attempts, `SELECT attempts::text FROM ferry.message_status WHERE message_key = $1`, key)
	}
}

// Messages that grow too old fail while they wait: those that were tried, and those that never had their turn.
func TestExpiresWhileWaiting(t *testing.T) {
	t.Parallel()
	d := newDestinations(t, "old")
	d.rewrite("max_attempts: 5", "max_attempts: 5, max_age: 4s")
	d.rewrite("concurrency: 20", "concurrency: 2")
	d.at["old"].Down()
	d.forwarder()
	d.store("old", 200)
	d.is(patience, "200", count+"status = 'failed' AND reason = 'expired' AND attempts = 0", "old")
	d.is(patience, "true", `SELECT (count(*) > 0 AND count(*) < 200)::text FROM ferry.deliveries WHERE requests = 0`)
}

// The attempts of a message come with growing gaps, and end with the last one that it has.
func TestGapsGrow(t *testing.T) {
	t.Parallel()
	d := newDestinations(t, "gaps")
	d.rewrite("initial: 200ms", "initial: 300ms, jitter: 0")
	d.at["gaps"].Always(receivertest.Status(500))
	d.forwarder()
	d.store("gaps", 1)
	d.is(patience, "failed exhausted 5", `SELECT status || ' ' || reason || ' ' || attempts FROM ferry.message_status`)
	requests := d.at["gaps"].Requests()
	if len(requests) != 5 {
		t.Fatalf("%d requests", len(requests))
	}
	for i, least := range []time.Duration{300, 600, 1200, 2000} {
		if gap := requests[i+1].At.Sub(requests[i].At); gap < least*time.Millisecond-10*time.Millisecond {
			t.Errorf("attempt %d came %s after the one before, want at least %dms", i+2, gap, least)
		}
	}
}
