package kafkatest

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ferry-forward/ferry/internal/message"
)

// Records returns all records that a topic has now, read from its start, the partitions one after another in no order.
func (c *Cluster) Records(t testing.TB, topic string) []Record {
	t.Helper()
	var want int64
	for _, end := range c.Ends(t, topic) {
		want += end
	}
	if want == 0 {
		return nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatalf("reading topic %s: %v", topic, err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var all []Record
	for int64(len(all)) < want {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("reading topic %s: %d of %d records came: %v", topic, len(all), want, fetches.Err())
		}
		fetches.EachRecord(func(r *kgo.Record) {
			one := Record{Partition: r.Partition, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
			for _, h := range r.Headers {
				one.Headers = append(one.Headers, message.Header{Name: h.Key, Value: h.Value})
			}
			all = append(all, one)
		})
	}
	return all
}

// Header returns the value of the record's last header of a name.
func (r Record) Header(name string) (value string, ok bool) {
	for _, h := range r.Headers {
		if h.Name == name {
			value, ok = string(h.Value), true
		}
	}
	return value, ok
}
