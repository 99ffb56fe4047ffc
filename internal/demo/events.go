package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The topics of the parking example.
const (
	vehicleTopic   = "device-vehicle-event"
	heartbeatTopic = "device-heartbeat"
)

// event is one record that Kafka took.
type event struct {
	topic     string
	partition int32
	offset    int64
	id        string // messageId; empty when the record is not JSON
	repeat    bool   // the same event was produced before
}

// source produces parking events and remembers each one that Kafka acknowledged.
type source struct {
	client *kgo.Client
	forget bool // remember nothing: it runs without an end

	mu     sync.Mutex
	events []event
	failed error
}

func newSource(brokers []string) (*source, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.ProducerLinger(5*time.Millisecond),
		kgo.RecordDeliveryTimeout(30*time.Second),
	)
	if err != nil {
		return nil, fmt.Errorf("connecting to Kafka: %w", err)
	}
	return &source{client: client}, nil
}

func (s *source) close() { s.client.Close() }

// produced returns what Kafka acknowledged so far.
func (s *source) produced() []event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events[:len(s.events):len(s.events)]
}

func (s *source) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.events)
}

// produce sends rate events a second until ctx ends or d is over (0: no end), and waits until Kafka has acknowledged them.
func (s *source) produce(ctx context.Context, rate int, d time.Duration) error {
	const beat = 20 * time.Millisecond
	tick := time.NewTicker(beat)
	defer tick.Stop()
	from, sent := time.Now(), 0
	for d == 0 || time.Since(from) < d {
		for due := int(time.Since(from).Seconds() * float64(rate)); sent < due; sent++ {
			s.send(ctx, sent)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := s.client.Flush(ctx); err != nil {
		return fmt.Errorf("waiting for Kafka to take the events: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// send sends the n-th event: mostly vehicles, every tenth a heartbeat. Now and then one is sent twice, as a platform does
// that got no acknowledgement, and one is broken off in the middle.
func (s *source) send(ctx context.Context, n int) {
	id := newID()
	topic := vehicleTopic
	key, value := vehicle(id)
	if n%10 == 9 {
		topic = heartbeatTopic
		key, value = heartbeat(id)
	}
	r := &kgo.Record{
		Topic: topic, Key: []byte(key), Value: value,
		Headers: []kgo.RecordHeader{{Key: "source", Value: []byte("demo")}},
	}
	switch n % 200 {
	case 57, 157:
		s.put(ctx, r, event{topic: topic, id: id})
		again := *r
		s.put(ctx, &again, event{topic: topic, id: id, repeat: true})
	case 111:
		r.Value = value[:len(value)/2]
		s.put(ctx, r, event{topic: topic})
	default:
		s.put(ctx, r, event{topic: topic, id: id})
	}
}

func (s *source) put(ctx context.Context, r *kgo.Record, e event) {
	// Not ended by ctx: what is under way when the demo is interrupted is under way.
	s.client.Produce(context.WithoutCancel(ctx), r, func(r *kgo.Record, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			s.failed = errors.Join(s.failed, fmt.Errorf("producing an event: %w", err))
			return
		}
		if !s.forget {
			e.partition, e.offset = r.Partition, r.Offset
			s.events = append(s.events, e)
		}
	})
}

func newID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// vehicle makes the event of a car that drives in or out.
func vehicle(id string) (key string, value []byte) {
	park := fmt.Sprintf("P%d", 1+mathrand.IntN(8))
	lane := 1 + mathrand.IntN(4)
	inout := mathrand.IntN(2)
	now := time.Now()
	var credible any // some cameras do not say
	if mathrand.IntN(20) > 0 {
		credible = json.Number(fmt.Sprintf("%.3f", 0.7+0.3*mathrand.Float64()))
	}
	return park, encode(map[string]any{
		"messageId":     id,
		"parkCode":      park,
		"devCode":       fmt.Sprintf("%s-CAM%d", park, lane),
		"channelCode":   fmt.Sprintf("C%d", lane),
		"passTime":      now.Format(time.DateTime),
		"plate":         plate(),
		"plateColor":    mathrand.IntN(5),
		"carType":       1 + mathrand.IntN(3),
		"plateCredible": credible,
		"inoutType":     inout,
		"picType":       1 + mathrand.IntN(4),
		"picUrl":        fmt.Sprintf("jieshun/%s/%s.jpg", now.Format("20060102"), id),
	})
}

// heartbeat makes the sign of life of a camera, with its picture.
func heartbeat(id string) (key string, value []byte) {
	park := fmt.Sprintf("P%d", 1+mathrand.IntN(8))
	lane := 1 + mathrand.IntN(4)
	dev := fmt.Sprintf("%s-CAM%d", park, lane)
	now := time.Now()
	return dev, encode(map[string]any{
		"messageId":   id,
		"parkCode":    park,
		"devCode":     dev,
		"channelCode": fmt.Sprintf("C%d", lane),
		"passTime":    now.Format(time.DateTime),
		"picType":     3,
		"picUrl":      fmt.Sprintf("jieshun/%s/%s.jpg", now.Format("20060102"), id),
	})
}

func plate() string {
	const letters = "ABCDEFGHJKLMNPQRSTUVWXYZ"
	provinces := []rune("京津沪渝粤浙苏鲁川")
	return fmt.Sprintf("%c%c%05d", provinces[mathrand.IntN(len(provinces))], letters[mathrand.IntN(len(letters))], mathrand.IntN(100_000))
}

func encode(v map[string]any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain values of our own always encode
	}
	return b
}
