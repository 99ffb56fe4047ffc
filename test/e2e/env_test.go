package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

var binaries proctest.Binaries //nolint:gochecknoglobals // built once for the package's tests

type stopping struct{ *testing.M }

func (s stopping) Run() int {
	code := s.M.Run()
	binaries.Clean()
	pgtest.Stop()
	return code
}

func TestMain(m *testing.M) { kafkatest.Main(stopping{m}) }

// patience bounds every wait that needs no rescue; rescuePatience those that do: leases, River's rounds of 30 s and the
// time of a job add up to less than 90 s by default.
const (
	patience       = 60 * time.Second
	rescuePatience = 120 * time.Second
)

// routeFile is a passthrough route with short times, so that a rescue is due after 22 s.
const routeFile = `version: 1
routes:
  - name: events
    topics: [%s]
    message_key: .id
    job_size: 20
    concurrency: 50
    retry: {initial: 200ms, max: 2s, max_attempts: 10}
    http: {timeout: 2s, connect_timeout: 1s}
    request:
      method: POST
      url: %s/events
`

// env is one installation: a database, a topic on a broker, a receiver, a route file, and the settings that join them.
type env struct {
	t        *testing.T
	pool     *pgxpool.Pool
	db       string
	kafka    *kafkatest.Cluster
	topic    string
	group    string
	receiver *receivertest.Receiver
	dir      string
	routes   string
	// brokers is what the ingester connects to; the kafka's own address unless a test puts a proxy between.
	brokers string
}

func newEnv(t *testing.T, kafka *kafkatest.Cluster, partitions int32) *env {
	t.Helper()
	e := &env{t: t, kafka: kafka, brokers: kafka.Addr, db: pgtest.New(t), group: kafkatest.Name("ferry"), dir: t.TempDir(), receiver: receivertest.New(t, receivertest.Options{})}
	e.topic = kafka.Topic(t, "events", partitions)
	pool, err := pgxpool.New(context.Background(), e.db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	e.pool = pool
	e.writeRoutes(fmt.Sprintf(routeFile, e.topic, e.receiver.URL()))
	return e
}

// writeRoutes replaces the route file; processes read it when they start.
func (e *env) writeRoutes(text string) {
	e.t.Helper()
	e.routes = filepath.Join(e.dir, "routes.yaml")
	if err := os.WriteFile(e.routes, []byte(text), 0o600); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) common() []string {
	return []string{"FERRY_DATABASE_URL=" + e.db, "FERRY_ROUTES=" + e.routes, "FERRY_LOG_LEVEL=debug"}
}

// ingester starts an ingester; settings override the usual ones.
func (e *env) ingester(settings ...string) *proctest.Proc {
	e.t.Helper()
	settings = append(append(e.common(), "FERRY_KAFKA_BROKERS="+e.brokers, "FERRY_KAFKA_GROUP="+e.group,
		"FERRY_KAFKA_CONFIG=session.timeout.ms=6000,heartbeat.interval.ms=500", "FERRY_ADMIN_ADDR=127.0.0.1:0"), settings...)
	return proctest.Start(e.t, binaries.Path(e.t, "ingester"), settings, "run")
}

// forwarder starts a forwarder; settings override the usual ones.
func (e *env) forwarder(settings ...string) *proctest.Proc {
	e.t.Helper()
	settings = append(append(e.common(), "FERRY_ADMIN_ADDR=127.0.0.1:0"), settings...)
	return proctest.Start(e.t, binaries.Path(e.t, "forwarder"), settings, "run")
}

// produce writes n records with ids from…from+n-1, spread over the topic's partitions.
func (e *env) produce(from, n int, partitions int32) {
	e.t.Helper()
	records := make([]kafkatest.Record, 0, n)
	for i := from; i < from+n; i++ {
		records = append(records, kafkatest.Record{
			Partition: int32(i) % partitions, Key: []byte(fmt.Sprintf("k%d", i%7)),
			Value: []byte(fmt.Sprintf(`{"id":"m%d","n":%d}`, i, i)),
		})
	}
	e.kafka.Produce(e.t, e.topic, records...)
}

// is waits until the query gives the text.
func (e *env) is(limit time.Duration, want, query string, args ...any) {
	e.t.Helper()
	proctest.Eventually(e.t, limit, func() error {
		got, err := e.ask(query, args...)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s: %q, want %q", query, got, want)
		}
		return nil
	})
}

// ask returns what a query gives as text; no row gives "".
func (e *env) ask(query string, args ...any) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var got string
	err := e.pool.QueryRow(ctx, query, args...).Scan(&got)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return got, err
}

const delivered = `SELECT count(*)::text FROM ferry.message_status WHERE status = 'delivered'`

// accounted checks, after everything has settled, that each of n produced records is delivered and was received, that
// the ledger balances, and that a message that came twice came with one key.
func (e *env) accounted(n int) {
	e.t.Helper()
	e.is(rescuePatience, fmt.Sprint(n), delivered)
	got := e.receiver.CountByKey()
	for i := range n {
		if got[fmt.Sprintf("m%d", i)] == 0 {
			e.t.Errorf("m%d is delivered by the database's word and was never received", i)
		}
	}
	if len(got) != n {
		e.t.Errorf("%d different idempotency keys for %d messages", len(got), n)
	}
	for _, q := range []string{
		`SELECT count(*)::text FROM ferry.ledger WHERE consumed <> stored + duplicates + filtered + skipped_tombstones`,
		`SELECT abs((SELECT sum(stored) FROM ferry.ledger) - (SELECT count(*) FROM ferry.messages))::text`,
		`SELECT abs((SELECT sum(delivered) FROM ferry.tallies) - (SELECT count(*) FROM ferry.deliveries WHERE status = 'delivered'))::text`,
		`SELECT count(*)::text FROM ferry.messages m LEFT JOIN ferry.deliveries d ON d.message_id = m.id WHERE d.message_id IS NULL`,
	} {
		if v, err := e.ask(q); err != nil || v != "0" {
			e.t.Errorf("%s: %s, %v", q, v, err)
		}
	}
}

// duplicates returns how many requests there were beyond one for each message.
func (e *env) duplicates() int { return e.receiver.Count() - e.receiver.Keys() }

// lock opens a transaction that runs the statement and keeps its locks until release is called or the test ends.
func (e *env) lock(statement string, args ...any) (release func()) {
	e.t.Helper()
	conn, err := pgx.Connect(context.Background(), e.db)
	if err != nil {
		e.t.Fatal(err)
	}
	tx, err := conn.Begin(context.Background())
	if err == nil {
		_, err = tx.Exec(context.Background(), statement, args...)
	}
	if err != nil {
		e.t.Fatalf("locking: %v", err)
	}
	released := false
	release = func() {
		if !released {
			released = true
			_ = tx.Rollback(context.Background())
			_ = conn.Close(context.Background())
		}
	}
	e.t.Cleanup(release)
	return release
}

// blocked waits until some backend of the database waits for a lock.
func (e *env) blocked() {
	e.t.Helper()
	e.is(patience, "true", `SELECT (count(*) > 0)::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
}

// freePort returns a port of 127.0.0.1 that is free now.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

// save stores messages m<from>… of route events without Kafka and ingester, as one batch.
func (e *env) save(from int, values ...string) {
	e.t.Helper()
	e.saveTo("events", from, values...)
}

// saveTo is save for a route of that name.
func (e *env) saveTo(route string, from int, values ...string) {
	e.t.Helper()
	s, err := store.Open(context.Background(), store.Config{URL: e.db, JobSizes: map[string]int{route: 20}})
	if err != nil {
		e.t.Fatal(err)
	}
	defer s.Close()
	tp := message.TopicPartition{Topic: route}
	if _, err := e.pool.Exec(context.Background(), `INSERT INTO ferry.positions ("group", topic, partition, topic_id, next_offset)
		VALUES ($1, $2, 0, '00000000-0000-0000-0000-000000000000', $3) ON CONFLICT DO NOTHING`, e.group, tp.Topic, from); err != nil {
		e.t.Fatal(err)
	}
	b := &message.Batch{Group: e.group, Advances: []message.Advance{{TopicPartition: tp, From: int64(from), To: int64(from + len(values))}}}
	for i, v := range values {
		b.Incoming = append(b.Incoming, message.Incoming{
			Route: route, Key: fmt.Sprintf("m%d", from+i), Result: message.IngestStored,
			Record: &message.Record{Position: message.Position{TopicPartition: tp, Offset: int64(from + i)}, Value: []byte(v)},
		})
	}
	if _, err := s.Save(context.Background(), b); err != nil {
		e.t.Fatal(err)
	}
}

// values returns n small JSON payloads.
func values(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`{"id":"m%d"}`, i)
	}
	return out
}
