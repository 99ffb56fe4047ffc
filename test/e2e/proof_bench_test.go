package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ferry-forward/ferry/internal/localpg"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

// fill stores rows as Ferry would have them: of two routes (one in a hundred is of the second), twelve partitions, one in
// a hundred failed, the rest delivered, received over seven days, 700 bytes each, an attempt each.
const fill = `
SELECT setseed(0.5);
INSERT INTO ferry.messages (received_at, produced_at, "offset", partition, topic_id, topic, route, message_key, payload_sha256, payload)
SELECT now() - interval '7 days' * (1 - n / %[1]d.0), now(), n / 12, n %% 12, '00000000-0000-0000-0000-000000000001', 'events',
	CASE WHEN n %% 100 = 7 THEN 'rare' ELSE 'events' END, 'key-' || n, sha256(n::text::bytea),
	convert_to('{"id":"key-' || n || '","filler":"' || repeat(md5(n::text), 20) || '"}', 'UTF8')
FROM generate_series(1, %[1]d) AS n;
INSERT INTO ferry.deliveries (message_id, route, status, reason, attempts, requests, http_status, error_code, settled_at, due_from)
SELECT m.id, m.route, CASE WHEN m.id %% 100 = 0 THEN 'failed' ELSE 'delivered' END, CASE WHEN m.id %% 100 = 0 THEN 'rejected' END, 1, 1,
	CASE WHEN m.id %% 100 = 0 THEN 400 ELSE 200 END, CASE WHEN m.id %% 1000 = 0 THEN '998' END, m.received_at, m.received_at
FROM ferry.messages AS m;
INSERT INTO ferry.failures (message_id, failed_at, http_status, route, reason, error_code)
SELECT d.message_id, d.settled_at, d.http_status, d.route, d.reason, d.error_code FROM ferry.deliveries AS d WHERE d.status = 'failed';
INSERT INTO ferry.attempts (message_id, started_at, attempt, duration_ms, http_status, counted, verdict, forwarder)
SELECT d.message_id, now(), 1, 5, d.http_status, true, CASE d.status WHEN 'failed' THEN 'reject' ELSE 'delivered' END, 'f' FROM ferry.deliveries AS d;
INSERT INTO ferry.ledger (route, topic, topic_id, partition, consumed, stored)
SELECT m.route, m.topic, m.topic_id, m.partition, count(*), count(*) FROM ferry.messages AS m GROUP BY 1, 2, 3, 4;
INSERT INTO ferry.tallies (slot, route, delivered, failed)
SELECT 0, d.route, count(*) FILTER (WHERE d.status = 'delivered'), count(*) FILTER (WHERE d.status = 'failed') FROM ferry.deliveries AS d GROUP BY d.route;
UPDATE ferry.reconcile SET seen_to = %[1]d, sure_to = %[1]d, mark = %[1]d;
`

// BenchmarkProof measures the commands that look, on a database with -benchtime rows:
//
//	go test ./test/e2e -run '^$' -bench Proof -benchtime 3000000x -timeout 1h
func BenchmarkProof(b *testing.B) {
	if b.N == 1 {
		return // the trial run of a benchmark
	}
	plain := &proctest.Binaries{Plain: true}
	b.Cleanup(plain.Clean)
	forwarder := plain.Path(b, "forwarder")
	ctx := context.Background()
	server, err := localpg.Start(ctx, localpg.Config{Params: map[string]string{"shared_buffers": "512MB", "max_wal_size": "8GB"}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(server.Stop)
	e := &benchEnv{b: b, dir: b.TempDir()}
	routes := e.write(strings.ReplaceAll(fmt.Sprintf(proofBenchRoutes, "events", "rare"), "\t", "  "))
	settings := []string{"FERRY_DATABASE_URL=" + server.URL, "FERRY_ROUTES=" + routes, "FERRY_ADMIN_ADDR=127.0.0.1:0", "FERRY_LOG_LEVEL=warn"}
	if _, stderr, code := proctest.Run(b, forwarder, settings, "migrate", "up"); code != 0 {
		b.Fatal(stderr)
	}
	pool, err := pgxpool.New(ctx, server.URL)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	for sql := range strings.SplitSeq(fmt.Sprintf(fill, b.N), ";\n") {
		if strings.TrimSpace(sql) == "" {
			continue
		}
		if _, err := pool.Exec(ctx, sql); err != nil {
			b.Fatalf("%s: %v", sql, err)
		}
	}
	if _, err := pool.Exec(ctx, "VACUUM ANALYZE"); err != nil {
		b.Fatal(err)
	}
	last := strconv.Itoa(b.N)
	middle := strconv.Itoa(b.N / 2)
	b.ResetTimer()
	for _, args := range [][]string{
		{"audit"},
		{"show", "key:key-" + middle},
		{"list"},
		{"list", "--after", middle},
		{"list", "--route", "rare"},
		{"list", "--status", "failed"},
		{"list", "--status", "failed", "--route", "rare"},
		{"list", "--status", "pending"},
		{"list", "--reason", "rejected", "--since", "3d"},
		{"list", "--since", "2d", "--until", "1d"},
		{"list", "--key-prefix", "key-" + last[:len(last)-2]},
		{"list", "--key-prefix", "key-1"},
		{"list", "--http-status", "400"},
		{"list", "--http-status", "503"},
		{"list", "--error-code", "998"},
		{"list", "--topic", "events", "--partition", "5", "--from-offset", "1000", "--to-offset", "1100"},
		{"list", "--topic", "events", "--partition", "5"},
	} {
		best := time.Hour
		for range 3 {
			start := time.Now()
			stdout, stderr, code := proctest.Run(b, forwarder, settings, args...)
			if best = min(best, time.Since(start)); code != 0 {
				b.Errorf("%v ended with %d: %.500s%.500s", args, code, stdout, stderr)
				break
			}
		}
		b.Logf("%8.0f ms  %s", float64(best.Microseconds())/1000, strings.Join(args, " "))
	}
	b.StopTimer()
	b.Logf("%8.0f ms  /metrics", float64(e.scrape(forwarder, settings).Microseconds())/1000)
	b.ReportMetric(0, "ns/op")
}

// scrape returns how long /metrics takes.
func (e *benchEnv) scrape(forwarder string, settings []string) time.Duration {
	addr := "127.0.0.1:" + freePort(e.b)
	fw := proctest.Start(e.b, forwarder, append(settings, "FERRY_ADMIN_ADDR="+addr), "run")
	defer fw.Term(30 * time.Second)
	best := time.Hour
	for range 5 {
		proctest.Eventually(e.b, time.Minute, func() error {
			start := time.Now()
			resp, err := http.Get("http://" + addr + "/metrics") //nolint:noctx // a benchmark
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			text, err := io.ReadAll(resp.Body)
			if err != nil || !strings.Contains(string(text), `ferry_messages{route="events",state="delivered"}`) {
				return fmt.Errorf("%w: %.200s", os.ErrNotExist, text)
			}
			best = min(best, time.Since(start))
			return nil
		})
	}
	return best
}

const proofBenchRoutes = `version: 1
routes:
	- name: %s
		topics: [events]
		message_key: .id
		request: {method: POST, url: "http://127.0.0.1:1/"}
	- name: %s
		topics: [events]
		message_key: .id
		request: {method: POST, url: "http://127.0.0.1:1/"}
`
