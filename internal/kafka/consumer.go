package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	ck "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/ferry-forward/ferry/internal/message"
)

// Config says which cluster is read as which group.
type Config struct {
	Brokers []string // host:port
	Group   string
	// Properties are further librdkafka properties; see Properties.
	Properties map[string]string
	Logger     *slog.Logger
}

// Events is told what happens in Kafka, inside Poll or Close. Its methods must not block for long.
type Events interface {
	// Assigned says that the group gave these partitions to this process. They are not read until Start.
	Assigned(tps []message.TopicPartition)
	// Revoked says that the group takes these partitions away when the method returns. Lost: they may have another
	// owner already, so that nothing may be committed for them.
	Revoked(tps []message.TopicPartition, lost bool)
	// Record is a record of a partition that was started. It has no topic id.
	Record(r *message.Record)
	// End says that all records before the offset were handed on, and that there are no more for now.
	End(tp message.TopicPartition, offset int64)
	// OffsetLost says that some partition is not read any more, because its offset is not in Kafka (any more): removed
	// by retention, cut off, or of a topic that was created anew. librdkafka tells which one, confluent-kafka-go does
	// not. Start reads on.
	OffsetLost()
	// Trouble is an error that librdkafka deals with by itself: a broker that is away, a topic that is missing.
	Trouble(err error)
}

// Consumer reads topics as a member of a group.
type Consumer struct {
	c      *ck.Consumer
	admin  *ck.AdminClient
	events Events
	log    *slog.Logger

	assigned map[message.TopicPartition]*partition // of the polling goroutine
	troubles troubles                              // of the polling goroutine

	logs    chan ck.LogEvent
	logDone sync.WaitGroup

	mu      sync.Mutex // guards what follows
	calls   int        // calls under way that use the handle
	closing bool
	dead    bool          // a fatal error was told
	idle    chan struct{} // closed when closing and no call is under way
}

// New makes a consumer. It fails on wrong properties, not on brokers that are away.
func New(cfg Config, events Events) (*Consumer, error) {
	m, err := configMap(cfg)
	if err != nil {
		return nil, err
	}
	logger := cfg.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	c := &Consumer{
		events: events, log: logger, logs: make(chan ck.LogEvent, 100), idle: make(chan struct{}),
		assigned: map[message.TopicPartition]*partition{},
		troubles: troubles{certs: &inspector{cfg: cfg}, tokens: securityOf(cfg.Properties).oidc},
	}
	m["go.logs.channel.enable"] = true
	m["go.logs.channel"] = c.logs
	if c.c, err = ck.NewConsumer(&m); err != nil {
		return nil, settingsError(err)
	}
	if c.admin, err = ck.NewAdminClientFromConsumer(c.c); err != nil {
		return nil, errors.Join(fmt.Errorf("setting up the Kafka admin client: %w", err), c.c.Close())
	}
	c.logDone.Go(func() { writeLogs(c.logs, logger) })
	return c, nil
}

// Subscribe says which topics are read, at least one; it replaces those of an earlier call. A topic need not exist yet.
func (c *Consumer) Subscribe(topics []string) error {
	if err := c.c.SubscribeTopics(topics, c.rebalance); err != nil {
		return fmt.Errorf("subscribing to %d topics: %w", len(topics), err)
	}
	return nil
}

// Poll waits for one thing to happen and tells Events. It must be called again and again, also while all partitions are
// paused: the group takes a process that does not poll for dead. Its error is fatal for the consumer.
func (c *Consumer) Poll(timeout time.Duration) error {
	switch e := c.c.Poll(int(timeout.Milliseconds())).(type) {
	case *ck.Message:
		if e.TopicPartition.Error != nil {
			return c.failed(e.TopicPartition.Error)
		}
		tp := toTP(e.TopicPartition)
		p, ok := c.assigned[tp]
		if !ok || !p.started {
			return nil // read ahead before the pause took hold
		}
		p.next = int64(e.TopicPartition.Offset) + 1
		c.events.Record(record(tp, e))
	case ck.PartitionEOF:
		if p, ok := c.assigned[toTP(ck.TopicPartition(e))]; ok && p.started {
			c.events.End(toTP(ck.TopicPartition(e)), int64(e.Offset))
		}
	case ck.Error:
		return c.failed(e)
	case ck.OAuthBearerTokenRefresh:
		// Comes where librdkafka gets no tokens by itself, which Check refuses.
		_ = c.c.SetOAuthBearerTokenFailure("sasl.oauthbearer.method is not oidc")
	}
	return nil
}

// failed sorts out errors: fatal ones, a lost offset, and all others, which librdkafka gets over.
func (c *Consumer) failed(err error) error {
	var e ck.Error
	switch {
	case !errors.As(err, &e):
		c.events.Trouble(err)
	case e.IsFatal():
		c.mu.Lock()
		c.dead = true
		c.mu.Unlock()
		return fatal(e)
	case e.Code() == ck.ErrAutoOffsetReset:
		c.events.OffsetLost()
	case e.Code() == ck.ErrUnknownTopicOrPart, e.Code() == ck.ErrUnknownTopic, e.Code() == ck.ErrUnknownPartition:
		// Said again and again while a topic is not there. TopicIDs tells, with the name.
	default:
		c.events.Trouble(c.troubles.explain(e))
	}
	return nil
}

// Close leaves the group, telling Events of the partitions it gives up, and frees everything. When the context ends
// first, the rest goes on in the background and the process had better exit. It is called once.
//
// After a fatal error there is no group to leave, and nothing is freed: librdkafka then refuses to begin with closing,
// which confluent-kafka-go does not notice, and waits for the end for ever.
func (c *Consumer) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closing = true
	dead := c.dead
	if c.calls == 0 {
		close(c.idle)
	}
	c.mu.Unlock()
	if dead {
		c.troubles.certs.stop()
		return nil
	}
	done := make(chan error, 1)
	go func() {
		<-c.idle // librdkafka must not be destroyed under a call
		c.troubles.certs.stop()
		err := c.c.Close()
		close(c.logs)
		c.logDone.Wait()
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("closing the Kafka consumer: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("leaving the Kafka group: %w; the group will notice by its session timeout", context.Cause(ctx))
	}
}

var errClosed = errors.New("the Kafka consumer is closed")

// enter begins a call that uses librdkafka's handle from any goroutine.
func (c *Consumer) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return errClosed
	}
	c.calls++
	return nil
}

func (c *Consumer) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls--
	if c.closing && c.calls == 0 {
		close(c.idle)
	}
}

func toTP(tp ck.TopicPartition) message.TopicPartition {
	return message.TopicPartition{Topic: *tp.Topic, Partition: tp.Partition}
}

func toTPs(tps []ck.TopicPartition) []message.TopicPartition {
	out := make([]message.TopicPartition, len(tps))
	for i, tp := range tps {
		out[i] = toTP(tp)
	}
	return out
}

// record copies what Kafka sent. librdkafka tells null from empty, and so does the copy.
func record(tp message.TopicPartition, m *ck.Message) *message.Record {
	r := &message.Record{
		Position: message.Position{TopicPartition: tp, Offset: int64(m.TopicPartition.Offset)},
		Key:      m.Key,
		Value:    m.Value,
	}
	if m.TimestampType != ck.TimestampNotAvailable {
		r.Timestamp = m.Timestamp
	}
	if len(m.Headers) > 0 {
		r.Headers = make([]message.Header, len(m.Headers))
		for i, h := range m.Headers {
			r.Headers[i] = message.Header{Name: h.Key, Value: h.Value}
		}
	}
	return r
}
