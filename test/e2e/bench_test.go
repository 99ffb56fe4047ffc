package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/ferry-forward/ferry/internal/localpg"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

// BenchmarkPipeline measures both binaries, Postgres with fsync, kfake and a receiver that answers in 2 ms, all on this
// machine, with mapped 700-byte messages: from the start of the two binaries to the last outcome stored.
//
//	go test ./test/e2e -run '^$' -bench . -benchtime 30000x
func BenchmarkPipeline(b *testing.B) {
	bench(b, true)
}

// BenchmarkForwarder measures the forwarder alone, on messages that are stored already.
func BenchmarkForwarder(b *testing.B) {
	bench(b, false)
}

func bench(b *testing.B, kafka bool) {
	if b.N == 1 {
		return // the trial run of a benchmark
	}
	plain := &proctest.Binaries{Plain: true}
	b.Cleanup(plain.Clean)
	forwarder := plain.Path(b, "forwarder")
	ctx := context.Background()
	server, err := localpg.Start(ctx, localpg.Config{Params: map[string]string{"shared_buffers": "512MB", "max_wal_size": "4GB"}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(server.Stop)
	var received atomic.Int64
	receiver := &http.Server{Addr: "127.0.0.1:" + freePort(b), ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-time.After(2 * time.Millisecond)
		received.Add(1)
		_, _ = w.Write([]byte(`{"result":0}`))
	})}
	go func() { _ = receiver.ListenAndServe() }()
	b.Cleanup(func() { _ = receiver.Close() })

	c := kafkatest.Fake(b, kfake.NumBrokers(1))
	topic := c.Topic(b, "bench", 6)
	e := &benchEnv{b: b, dir: b.TempDir()}
	routes := e.write(fmt.Sprintf(benchRoutes, topic, receiver.Addr))
	settings := []string{"FERRY_DATABASE_URL=" + server.URL, "FERRY_ROUTES=" + routes, "FERRY_ADMIN_ADDR=127.0.0.1:0", "FERRY_LOG_LEVEL=warn"}
	if _, stderr, code := proctest.Run(b, forwarder, settings, "migrate", "up"); code != 0 {
		b.Fatal(stderr)
	}
	if e.pool, err = pgxpool.New(ctx, server.URL); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(e.pool.Close)
	for from := 0; from < b.N; from += 5000 {
		if n := min(b.N, from+5000) - from; kafka {
			e.produce(c, topic, from, n)
		} else {
			e.save(server.URL, from, n)
		}
	}
	before := e.figures()
	b.ResetTimer()
	start := time.Now()
	if kafka {
		in := proctest.Start(b, plain.Path(b, "ingester"), append(settings, "FERRY_KAFKA_BROKERS="+c.Addr, "FERRY_KAFKA_GROUP=bench"), "run")
		defer in.Term(30 * time.Second)
	}
	fw := proctest.Start(b, forwarder, settings, "run")
	defer fw.Term(30 * time.Second)
	proctest.Eventually(b, 10*time.Minute, func() error {
		var n int64
		if err := e.pool.QueryRow(ctx, `SELECT coalesce(sum(delivered), 0)::bigint FROM ferry.tallies`).Scan(&n); err != nil {
			return err
		}
		if n < int64(b.N) {
			return fmt.Errorf("%d of %d delivered", n, b.N)
		}
		return nil
	})
	took := time.Since(start)
	b.StopTimer()
	after := e.figures()
	if got := received.Load(); got != int64(b.N) {
		b.Errorf("%d requests for %d messages", got, b.N)
	}
	n := float64(b.N)
	b.ReportMetric(n/took.Seconds(), "msg/s")
	b.ReportMetric(float64(after.transactions-before.transactions)/n, "tx/msg")
	b.ReportMetric(float64(after.wal-before.wal)/n, "WAL-B/msg")
	b.ReportMetric(0, "ns/op")
}

// benchValue is a 700-byte event.
func benchValue(i int) []byte {
	return fmt.Appendf(nil, `{"messageId":"m%d","parkCode":"P%d","plate":"B12345","plateCredible":0.854,"inoutType":0,"picUrl":"a/b.jpg","filler":"%s"}`, i, i%50, strings.Repeat("x", 570))
}

func (e *benchEnv) produce(c *kafkatest.Cluster, topic string, from, n int) {
	var records []kafkatest.Record
	for i := from; i < from+n; i++ {
		records = append(records, kafkatest.Record{Partition: int32(i % 6), Value: benchValue(i)})
	}
	c.Produce(e.b, topic, records...)
}

func (e *benchEnv) save(url string, from, n int) {
	s, err := store.Open(context.Background(), store.Config{URL: url, JobSizes: map[string]int{"bench": 20}})
	if err != nil {
		e.b.Fatal(err)
	}
	defer s.Close()
	tp := message.TopicPartition{Topic: "bench"}
	batch := &message.Batch{Group: "bench"}
	for i := from; i < from+n; i++ {
		batch.Incoming = append(batch.Incoming, message.Incoming{
			Route: "bench", Key: fmt.Sprintf("m%d", i), Result: message.IngestStored,
			Record: &message.Record{Position: message.Position{TopicPartition: tp, Offset: int64(i)}, Value: benchValue(i)},
		})
	}
	if _, err := s.Save(context.Background(), batch); err != nil {
		e.b.Fatal(err)
	}
}

const benchRoutes = `version: 1
routes:
  - name: bench
    topics: [%s]
    message_key: .messageId
    request:
      method: POST
      url: http://%s/mch/business
      body: |
        { park_code: .parkCode, plate_no: .plate, plate_confidence: (.plateCredible * 100 | round | tostring),
          enter_state: (if .inoutType == 0 then "2" else "1" end), pic_info: [{pic_url: .picUrl}], rest: .filler }
    response:
      rules: [{when: '.status == 200 and .body.result == 0', then: delivered}]
`

type benchEnv struct {
	b    *testing.B
	dir  string
	pool *pgxpool.Pool
}

type figures struct{ transactions, wal int64 }

func (e *benchEnv) figures() figures {
	var f figures
	err := e.pool.QueryRow(context.Background(), `SELECT (SELECT sum(xact_commit)::bigint FROM pg_stat_database), (pg_current_wal_insert_lsn() - '0/0')::bigint`).Scan(&f.transactions, &f.wal)
	if err != nil {
		e.b.Fatal(err)
	}
	return f
}

func (e *benchEnv) write(text string) string {
	path := filepath.Join(e.dir, "routes.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		e.b.Fatal(err)
	}
	return path
}
