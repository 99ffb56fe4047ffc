package ingest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/forward/jq"
	"github.com/ferry-forward/ferry/internal/ingest"
	"github.com/ferry-forward/ferry/internal/kafka"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
)

func TestMain(m *testing.M) { kafkatest.Main(pgtest.Main(m)) }

// memory is a database in memory that keeps the rules of internal/store, with faults on demand.
type memory struct {
	mu       sync.Mutex
	rows     map[message.TopicPartition]message.StoredPosition
	messages map[string]message.Incoming // by route and key
	order    []message.Position          // of the records stored for the first route, in the order of storing
	results  map[message.IngestResult]int
	batches  []int // records in each transaction
	running  int   // calls that run now
	inside   map[message.TopicPartition]int
	expired  int64

	// before is called at the beginning of each call; an error is the call's.
	before func(ctx context.Context, b *message.Batch) error
}

func newMemory() *memory {
	return &memory{
		rows: map[message.TopicPartition]message.StoredPosition{}, messages: map[string]message.Incoming{},
		results: map[message.IngestResult]int{}, inside: map[message.TopicPartition]int{},
	}
}

func (m *memory) fail(before func(ctx context.Context, b *message.Batch) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before = before
}

func (m *memory) enter(ctx context.Context, b *message.Batch) error {
	m.mu.Lock()
	before := m.before
	m.running++
	m.mu.Unlock()
	if before != nil {
		return before(ctx, b)
	}
	return nil
}

func (m *memory) Save(ctx context.Context, b *message.Batch) (*message.Saved, error) {
	err := m.enter(ctx, b)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running--
	if err != nil {
		return nil, err
	}
	var moved []message.TopicPartition
	for _, a := range b.Advances {
		if row, ok := m.rows[a.TopicPartition]; !ok || row.NextOffset != a.From || row.TopicID != a.TopicID {
			moved = append(moved, a.TopicPartition)
		}
	}
	if len(moved) > 0 {
		return nil, &message.PositionsMovedError{Partitions: moved}
	}
	for _, a := range b.Advances {
		m.rows[a.TopicPartition] = message.StoredPosition{TopicPartition: a.TopicPartition, TopicID: a.TopicID, NextOffset: a.To}
	}
	saved := &message.Saved{}
	for _, in := range b.Incoming {
		result := in.Result
		if result == message.IngestStored || result == message.IngestUnstorable {
			key := in.Route + " " + in.Key
			if old, ok := m.messages[key]; !ok {
				m.messages[key] = in
				m.order = append(m.order, in.Record.Position)
			} else if result = message.IngestDuplicate; sha256.Sum256(old.Record.Value) != sha256.Sum256(in.Record.Value) {
				result = message.IngestConflict
				saved.Conflicts = append(saved.Conflicts, message.ConflictPair{
					Route: in.Route, Key: in.Key, First: old.Record.Position, Second: in.Record.Position,
				})
			}
		}
		saved.Results = append(saved.Results, result)
		m.results[result]++
	}
	m.batches = append(m.batches, len(b.Incoming))
	return saved, nil
}

func (m *memory) Positions(ctx context.Context, _ string, tps []message.TopicPartition) ([]message.StoredPosition, error) {
	err := m.enter(ctx, nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running--
	if err != nil {
		return nil, err
	}
	var rows []message.StoredPosition
	for _, tp := range tps {
		if row, ok := m.rows[tp]; ok {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func (m *memory) ChangePositions(_ context.Context, _ string, changes []message.PositionChange) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var moved []message.TopicPartition
	for _, c := range changes {
		if row, ok := m.rows[c.TopicPartition]; ok != (c.Was != nil) || ok && row != *c.Was {
			moved = append(moved, c.TopicPartition)
		}
	}
	if len(moved) > 0 {
		return &message.PositionsMovedError{Partitions: moved}
	}
	for _, c := range changes {
		m.rows[c.TopicPartition] = c.StoredPosition
		m.expired += c.Expired
	}
	return nil
}

// stored counts messages of one route.
func (m *memory) stored() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.messages)
}

func (m *memory) count(r message.IngestResult) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.results[r]
}

// row returns the next offset of a partition, -1 when it has none.
func (m *memory) row(tp message.TopicPartition) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if row, ok := m.rows[tp]; ok {
		return row.NextOffset
	}
	return -1
}

// inOrder fails when records of a partition were stored in another order than they have.
func (m *memory) inOrder(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	last := map[message.TopicPartition]int64{}
	for _, p := range m.order {
		if before, ok := last[p.TopicPartition]; ok && p.Offset <= before {
			t.Errorf("%v was stored after offset %d", p, before)
		}
		last[p.TopicPartition] = p.Offset
	}
}

// rowFault is an error for which a record is to blame.
type rowFault struct{ error }

func (rowFault) RowFault() bool { return true }

var errAway = errors.New("the database is away")

// counts are metrics.
type counts struct {
	mu        sync.Mutex
	records   map[message.IngestResult]int
	lag       map[message.TopicPartition]int64
	fallbacks int
	filters   int
	rewinds   int
}

func newCounts() *counts {
	return &counts{records: map[message.IngestResult]int{}, lag: map[message.TopicPartition]int64{}}
}

func (c *counts) with(f func()) { c.mu.Lock(); defer c.mu.Unlock(); f() }

func (c *counts) IngestRecords(_ string, r message.IngestResult, n int) {
	c.with(func() { c.records[r] += n })
}
func (c *counts) IngestBatch(time.Duration) {}
func (c *counts) IngestLag(topic string, partition int32, n int64) {
	c.with(func() { c.lag[tp(topic, partition)] = n })
}

func (c *counts) IngestGone(topic string, partition int32) {
	c.with(func() { delete(c.lag, tp(topic, partition)) })
}
func (c *counts) KeyFallback(string) { c.with(func() { c.fallbacks++ }) }
func (c *counts) FilterError(string) { c.with(func() { c.filters++ }) }
func (c *counts) PositionRewind()    { c.with(func() { c.rewinds++ }) }

func (c *counts) get(n *int) int { c.mu.Lock(); defer c.mu.Unlock(); return *n }

// process is an ingester that runs.
type process struct {
	t       testing.TB
	cluster *kafkatest.Cluster
	saver   ingest.Saver
	counts  *counts
	log     *lines
	g       *ingest.Ingester

	stop context.CancelFunc
	done chan struct{}
	err  error

	mu    sync.Mutex
	ready map[string]string // part → why not
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// count counts how often a text was logged.
func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// here is the id of the installation.
const here = "here"

type setup struct {
	group      string
	properties map[string]string
	source     func(ingest.Source) ingest.Source
	config     func(*ingest.Config)
}

// run starts an ingester; it is stopped at the end of the test at the latest.
func run(t testing.TB, c *kafkatest.Cluster, saver ingest.Saver, s setup, routes ...*route.Route) *process {
	t.Helper()
	if s.group == "" {
		s.group = kafkatest.Name("group")
	}
	p := &process{t: t, cluster: c, saver: saver, counts: newCounts(), log: &lines{}, done: make(chan struct{}), ready: map[string]string{}}
	cfg := ingest.Config{
		Group: s.group, Installation: here, Routes: routes, Saver: saver, Metrics: p.counts, BatchLinger: 50 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Ready: func(part string, ok bool, why string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if ok {
				why = ""
			}
			p.ready[part] = why
		},
	}
	if s.config != nil {
		s.config(&cfg)
	}
	p.g = ingest.New(cfg)
	properties := map[string]string{
		"topic.metadata.refresh.interval.ms": "500", "session.timeout.ms": "6000", "heartbeat.interval.ms": "200",
	}
	maps.Copy(properties, s.properties)
	consumer, err := kafka.New(kafka.Config{
		Brokers: []string{c.Addr}, Group: s.group, Properties: properties, Logger: cfg.Logger,
	}, p.g)
	if err != nil {
		t.Fatal(err)
	}
	var source ingest.Source = consumer
	if s.source != nil {
		source = s.source(consumer)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	go func() {
		defer close(p.done)
		p.err = p.g.Run(ctx, source)
	}()
	t.Cleanup(func() {
		p.end()
		if t.Failed() {
			t.Logf("the ingester's log:\n%s", p.log.text.String())
		}
	})
	return p
}

// end stops the ingester in order and returns how long it took.
func (p *process) end() time.Duration {
	p.t.Helper()
	began := time.Now()
	p.stop()
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		p.t.Error("the ingester does not stop")
	}
	if p.err != nil {
		p.t.Errorf("the ingester ended with: %v", p.err)
	}
	return time.Since(began)
}

// why says why a part is not ready.
func (p *process) why(part string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready[part]
}

func (p *process) isReady() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, part := range []string{ingest.PartKafka, ingest.PartTopics, ingest.PartDatabase} {
		if why, ok := p.ready[part]; !ok || why != "" {
			return false
		}
	}
	return true
}

func wait(t testing.TB, about string, condition func() bool) {
	t.Helper()
	kafkatest.Wait(t, about, condition)
}

func tp(topic string, partition int32) message.TopicPartition {
	return message.TopicPartition{Topic: topic, Partition: partition}
}

func program(t testing.TB, src string) *jq.Program {
	t.Helper()
	p, err := jq.Compile(src)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// plain is a route that takes the position as key.
func plain(topics ...string) *route.Route {
	return &route.Route{Name: "plain", Topics: topics, Tombstones: route.TombstonesSkip, JobSize: 20}
}

// produce writes n records to each of the partitions and returns how many.
func produce(t testing.TB, c *kafkatest.Cluster, topic string, partitions int32, n int) int {
	t.Helper()
	var records []kafkatest.Record
	for i := range n {
		for p := range partitions {
			records = append(records, kafkatest.Record{
				Partition: p, Value: fmt.Appendf(nil, `{"id":"%d-%d-%d"}`, p, i, time.Now().UnixNano()),
			})
		}
	}
	for chunk := range slices.Chunk(records, 5000) {
		c.Produce(t, topic, chunk...)
	}
	return len(records)
}

// committed says whether a group has committed all there is of a topic.
func committed(t testing.TB, c *kafkatest.Cluster, group, topic string) bool {
	t.Helper()
	return c.Lag(t, group, topic) == 0
}
