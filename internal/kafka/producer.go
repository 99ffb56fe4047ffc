package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	ck "github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"golang.org/x/sync/semaphore"

	"github.com/ferry-forward/ferry/internal/message"
)

// Producer writes records one by one, each known to be in Kafka when Produce returns without an error: idempotent, and
// acknowledged by all in-sync replicas. It connects when it is first used. It is safe for concurrent use.
//
// librdkafka gives an idempotent producer up for good when a broker's answer leaves it unsure of what is in the log. The
// next record then goes out by a new one; what the old one had not reported is reported as failed, although it may be in
// Kafka.
type Producer struct {
	cfg   Config
	conf  ck.ConfigMap
	log   *slog.Logger
	limit time.Duration
	batch int                 // batch.size
	turns *semaphore.Weighted // one for each record that is on its way, all for one that has to go alone

	mu     sync.Mutex // guards what follows
	now    *producing // nil: none was needed yet, or the last one is of no use any more
	closed bool
	old    sync.WaitGroup // those that are being closed
}

// allTurns is more than ever are on their way.
const allTurns = 1 << 20

// NewProducer makes a producer that takes at most limit for each record. It fails on wrong properties, not on brokers that
// are away. The Config's group is not used.
func NewProducer(cfg Config, limit time.Duration) (*Producer, error) {
	cfg = ofProducer(cfg)
	m, err := producerMap(cfg, limit)
	if err != nil {
		return nil, err
	}
	p := &Producer{cfg: cfg, conf: m, log: cfg.Logger, limit: limit, batch: batchSize, turns: semaphore.NewWeighted(allTurns)}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if s, ok := m["batch.size"].(string); ok {
		if n, err := strconv.Atoi(s); err == nil {
			p.batch = n
		}
	}
	return p, nil
}

// Produce writes a record to the topic of its position, a partition being chosen by its key, and returns when Kafka has
// it. A timestamp that is not set is now. The error is a *ProduceError, or the context's when that ended first; in either
// case the record may be in Kafka nevertheless, or come there yet.
func (p *Producer) Produce(ctx context.Context, r *message.Record) error {
	err := p.produce(ctx, r, 1)
	var e *ProduceError
	if errors.As(err, &e) && e.TooLarge() && r.Size() < 2*p.batch {
		// It may have been its batch that was too large. While a record has all turns, no other can be in its batch.
		err = p.produce(ctx, r, allTurns)
	}
	return err
}

func (p *Producer) produce(ctx context.Context, r *message.Record, turns int64) error {
	if err := p.turns.Acquire(ctx, turns); err != nil {
		return fmt.Errorf("writing to topic %s: %w", r.Topic, context.Cause(ctx))
	}
	defer p.turns.Release(turns)
	g, err := p.enter()
	if err != nil {
		return err
	}
	defer g.calls.Done()
	// librdkafka has the limit too, and mostly keeps it; with a broker that had gone it took up to 10 s instead of 2 s.
	limited, cancel := context.WithTimeoutCause(ctx, p.limit+limitGrace, errLimit)
	defer cancel()
	err = g.produce(limited, r)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if g.p.GetFatalError() != nil {
		p.retire(g)
	}
	return g.failed(r, err)
}

// limitGrace is what librdkafka gets to report by itself that a record had its time.
const limitGrace = time.Second

var errLimit = errors.New("no report came in time")

var errProducerClosed = errors.New("the Kafka producer is closed")

// enter begins a call, with a producer that can be used.
func (p *Producer) enter() (*producing, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errProducerClosed
	}
	if p.now == nil {
		g, err := p.begin()
		if err != nil {
			return nil, err
		}
		p.now = g
	}
	p.now.calls.Add(1)
	return p.now, nil
}

// retire closes a producer when no call uses it any more.
func (p *Producer) retire(g *producing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now != g {
		return
	}
	p.now = nil
	p.old.Go(g.close)
}

// Close frees everything. What is on its way is given up; when the context ends first, the rest goes on in the background.
// It is called once, and Produce then fails.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	g := p.now
	p.mu.Unlock()
	if g != nil {
		p.retire(g)
	}
	done := make(chan struct{})
	go func() {
		p.old.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("closing the Kafka producer: %w", context.Cause(ctx))
	}
}

// producing is one producer of librdkafka.
type producing struct {
	p     *ck.Producer
	calls sync.WaitGroup // added to under Producer.mu, while it is the one in use
	logs  chan ck.LogEvent
	ends  sync.WaitGroup // of its goroutines

	mu       sync.Mutex // guards what follows
	troubles troubles
	trouble  string
	at       time.Time
}

func (p *Producer) begin() (*producing, error) {
	g := &producing{
		logs:     make(chan ck.LogEvent, 100),
		troubles: troubles{certs: &inspector{cfg: p.cfg}, tokens: securityOf(p.cfg.Properties).oidc},
	}
	m := make(ck.ConfigMap, len(p.conf)+2)
	for name, value := range p.conf {
		m[name] = value
	}
	m["go.logs.channel.enable"] = true
	m["go.logs.channel"] = g.logs
	var err error
	if g.p, err = ck.NewProducer(&m); err != nil {
		return nil, producerSettings(err)
	}
	g.ends.Go(func() { writeLogs(g.logs, p.log) })
	g.ends.Go(func() { g.listen(p) })
	return g, nil
}

// listen takes what librdkafka has to tell beside the reports, until the producer is closed.
func (g *producing) listen(p *Producer) {
	for event := range g.p.Events() {
		switch e := event.(type) {
		case ck.Error:
			if e.IsFatal() {
				p.log.Warn("the Kafka producer can't go on, a new one takes its place", "error", e.Error())
				p.retire(g)
				continue
			}
			g.mu.Lock()
			g.trouble, g.at = g.troubles.explain(e).Error(), time.Now()
			g.mu.Unlock()
		case ck.OAuthBearerTokenRefresh:
			// Comes where librdkafka gets no tokens by itself, which CheckProducer refuses.
			_ = g.p.SetOAuthBearerTokenFailure("sasl.oauthbearer.method is not oidc")
		}
	}
}

// queueFull is the time between two tries while librdkafka's queue is full.
const queueFull = 20 * time.Millisecond

// produce hands a record to librdkafka and waits for the report. Its error is librdkafka's, or the context's.
func (g *producing) produce(ctx context.Context, r *message.Record) error {
	m := &ck.Message{
		TopicPartition: ck.TopicPartition{Topic: &r.Topic, Partition: ck.PartitionAny}, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp,
	}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, ck.Header{Key: h.Name, Value: h.Value})
	}
	report := make(chan ck.Event, 1) // so that a report nobody waits for holds up none
	for {
		err := g.p.Produce(m, report)
		if err == nil {
			break
		}
		var e ck.Error
		if !errors.As(err, &e) || e.Code() != ck.ErrQueueFull {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("writing to topic %s: %w", r.Topic, context.Cause(ctx))
		case <-time.After(queueFull):
		}
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("waiting for the report of a record for topic %s: %w", r.Topic, context.Cause(ctx))
	case event := <-report:
		if m, ok := event.(*ck.Message); ok {
			return m.TopicPartition.Error
		}
		return fmt.Errorf("waiting for the report of a record for topic %s: %w", r.Topic, errNoReport)
	}
}

var errNoReport = errors.New("something else came")

// close frees everything when no call is under way any more; those that are get their reports by the purge.
func (g *producing) close() {
	_ = g.p.Purge(ck.PurgeQueue | ck.PurgeInFlight) // it only refuses flags that there are not
	g.calls.Wait()
	g.troubles.certs.stop()
	g.p.Close()
	close(g.logs)
	g.ends.Wait()
}
