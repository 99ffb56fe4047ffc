package kafka_test

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/kafka"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

// reader polls a consumer and writes down what it is told. Its plan, which may be changed at any time, is where
// partitions start.
type reader struct {
	t      testing.TB
	c      *kafka.Consumer
	stop   chan struct{}
	done   chan struct{}
	do     chan func()
	closed sync.Once

	mu       sync.Mutex
	from     map[message.TopicPartition]int64 // what to start, 0 when not said
	hold     bool                             // do not start partitions
	owned    map[message.TopicPartition]bool
	starting []message.TopicPartition
	records  []*message.Record
	ends     map[message.TopicPartition]int64
	lost     int
	troubles []error
	fatal    error
}

type options struct {
	properties map[string]string
	group      string
	hold       bool
	from       map[message.TopicPartition]int64
}

func read(t testing.TB, cluster *kafkatest.Cluster, o options, topics ...string) *reader {
	t.Helper()
	if o.group == "" {
		o.group = kafkatest.Name("group")
	}
	properties := map[string]string{"topic.metadata.refresh.interval.ms": "500"}
	maps.Copy(properties, o.properties)
	r := &reader{
		t: t, stop: make(chan struct{}), done: make(chan struct{}), do: make(chan func()), from: o.from, hold: o.hold,
		owned: map[message.TopicPartition]bool{}, ends: map[message.TopicPartition]int64{},
	}
	c, err := kafka.New(kafka.Config{
		Brokers: []string{cluster.Addr}, Group: o.group, Properties: properties, Logger: slog.New(slog.DiscardHandler),
	}, r)
	if err != nil {
		t.Fatal(err)
	}
	r.c = c
	if err := c.Subscribe(topics); err != nil {
		t.Fatal(err)
	}
	go r.run()
	t.Cleanup(r.close)
	return r
}

func (r *reader) run() {
	defer close(r.done)
	for {
		select {
		case <-r.stop:
			return
		case f := <-r.do:
			f()
		default:
		}
		if err := r.c.Poll(20 * time.Millisecond); err != nil {
			r.mu.Lock()
			r.fatal = err
			r.mu.Unlock()
			return
		}
		r.start()
	}
}

func (r *reader) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hold || len(r.starting) == 0 {
		return
	}
	at := map[message.TopicPartition]int64{}
	for _, tp := range r.starting {
		at[tp] = r.from[tp]
	}
	r.starting = nil
	if err := r.c.Start(at); err != nil {
		r.t.Errorf("starting: %v", err)
	}
}

// on runs f on the polling goroutine.
func (r *reader) on(f func() error) {
	r.t.Helper()
	result := make(chan error, 1)
	select {
	case r.do <- func() { result <- f() }:
	case <-r.done:
		r.t.Fatal("the reader has ended")
	}
	if err := <-result; err != nil {
		r.t.Fatal(err)
	}
}

func (r *reader) close() {
	r.closed.Do(func() {
		close(r.stop)
		<-r.done
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := r.c.Close(ctx); err != nil {
			r.t.Errorf("closing: %v", err)
		}
	})
}

func (r *reader) Assigned(tps []message.TopicPartition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, tp := range tps {
		r.owned[tp] = true
	}
	r.starting = append(r.starting, tps...)
}

func (r *reader) Revoked(tps []message.TopicPartition, _ bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, tp := range tps {
		delete(r.owned, tp)
		r.starting = slices.DeleteFunc(r.starting, func(s message.TopicPartition) bool { return s == tp })
	}
}

func (r *reader) Record(m *message.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, m)
}

func (r *reader) End(tp message.TopicPartition, offset int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends[tp] = offset
}

func (r *reader) OffsetLost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost++
}

func (r *reader) Trouble(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.troubles = append(r.troubles, err)
}

func (r *reader) owns() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.owned)
}

// offsets returns the offsets read of a partition, in the order in which they came.
func (r *reader) offsets(tp message.TopicPartition) []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var offsets []int64
	for _, m := range r.records {
		if m.TopicPartition == tp {
			offsets = append(offsets, m.Offset)
		}
	}
	return offsets
}

func (r *reader) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.records)
}

func at(topic string, partition int32) message.TopicPartition {
	return message.TopicPartition{Topic: topic, Partition: partition}
}

func sequence(from, to int64) []int64 {
	var s []int64
	for i := from; i < to; i++ {
		s = append(s, i)
	}
	return s
}
