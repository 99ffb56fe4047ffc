package kafkatest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ferry-forward/ferry/internal/message"
)

// Record is a record to produce. Null and empty keys, values and header values are told apart. A zero Timestamp means
// now; time.UnixMilli(-1) means none.
type Record struct {
	Partition int32
	Key       []byte
	Value     []byte
	Headers   []message.Header
	Timestamp time.Time
}

// Value is a record with only a value, for partition 0.
func Value(value string) Record { return Record{Value: []byte(value)} }

func (r Record) of(topic string) *kgo.Record {
	out := &kgo.Record{Topic: topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Name, Value: h.Value})
	}
	return out
}

// Produce writes records in order and returns the offsets they got.
func (c *Cluster) Produce(t testing.TB, topic string, records ...Record) []int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	batch := make([]*kgo.Record, len(records))
	for i, r := range records {
		batch[i] = r.of(topic)
	}
	results := c.client.ProduceSync(ctx, batch...)
	if err := results.FirstErr(); err != nil {
		t.Fatalf("producing %d records to %s: %v", len(records), topic, err)
	}
	offsets := make([]int64, len(batch))
	for i, r := range batch {
		offsets[i] = r.Offset
	}
	return offsets
}

// CommittedOffset is what a group committed for a partition.
type CommittedOffset struct {
	Offset   int64
	Metadata string
}

// Committed returns what a group committed.
func (c *Cluster) Committed(t testing.TB, group string) map[message.TopicPartition]CommittedOffset {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group, req.Topics = group, nil
	one := kmsg.NewOffsetFetchRequestGroup()
	one.Group, one.Topics = group, nil
	req.Groups = append(req.Groups, one)
	committed := map[message.TopicPartition]CommittedOffset{}
	for ctx.Err() == nil {
		resp, err := req.RequestWith(ctx, c.client)
		if err == nil && len(resp.Groups) == 1 {
			err = kerr.ErrorForCode(resp.Groups[0].ErrorCode)
		}
		if errors.Is(err, kerr.GroupIDNotFound) {
			return committed // it has neither members nor offsets
		}
		if err != nil {
			pause(ctx) // the coordinator may be loading
			continue
		}
		for _, g := range resp.Groups {
			for _, topic := range g.Topics {
				for _, p := range topic.Partitions {
					o := CommittedOffset{Offset: p.Offset}
					if p.Metadata != nil {
						o.Metadata = *p.Metadata
					}
					committed[message.TopicPartition{Topic: topic.Topic, Partition: p.Partition}] = o
				}
			}
		}
		return committed
	}
	t.Fatalf("reading the committed offsets of group %s: %v", group, context.Cause(ctx))
	return nil
}

// Commit sets a group's offset as an operator would, with the group empty.
func (c *Cluster) Commit(t testing.TB, group string, tp message.TopicPartition, offset int64) {
	t.Helper()
	c.CommitMarked(t, group, tp, CommittedOffset{Offset: offset})
}

// CommitMarked sets a group's offset with metadata, with the group empty.
func (c *Cluster) CommitMarked(t testing.TB, group string, tp message.TopicPartition, offset CommittedOffset) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = tp.Topic
	topic.TopicID = c.TopicID(t, tp.Topic)
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = tp.Partition, offset.Offset, -1, &offset.Metadata
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	var last error
	for ctx.Err() == nil {
		resp, err := req.RequestWith(ctx, c.client)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
		}
		if err == nil {
			return
		}
		last = err
		pause(ctx)
	}
	t.Fatalf("committing %s for group %s: %v", tp, group, last)
}

// TopicID returns the id of a topic.
func (c *Cluster) TopicID(t testing.TB, name string) message.TopicID {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &name
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		t.Fatalf("describing topic %s: %v", name, err)
	}
	return resp.Topics[0].TopicID
}

// Ends returns the offset after the last record of each partition of a topic.
func (c *Cluster) Ends(t testing.TB, topic string) map[message.TopicPartition]int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	ends := map[message.TopicPartition]int64{}
	meta := kmsg.NewPtrMetadataRequest()
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = &topic
	meta.Topics = append(meta.Topics, mt)
	m, err := meta.RequestWith(ctx, c.client)
	if err != nil {
		t.Fatalf("describing topic %s: %v", topic, err)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	for _, p := range m.Topics[0].Partitions {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = p.Partition, -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		t.Fatalf("listing the offsets of topic %s: %v", topic, err)
	}
	for _, rt := range resp.Topics {
		for _, p := range rt.Partitions {
			ends[message.TopicPartition{Topic: rt.Topic, Partition: p.Partition}] = p.Offset
		}
	}
	return ends
}

// Lag returns how many offsets a group has not committed in a topic.
func (c *Cluster) Lag(t testing.TB, group, topic string) int64 {
	t.Helper()
	committed := c.Committed(t, group)
	var lag int64
	for tp, end := range c.Ends(t, topic) {
		lag += end - max(0, committed[tp].Offset)
	}
	return lag
}

// DeleteRecords removes the records of a partition before an offset, as retention would.
func (c *Cluster) DeleteRecords(t testing.TB, tp message.TopicPartition, before int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Partition, p.Offset = tp.Partition, before
	topic := kmsg.NewDeleteRecordsRequestTopic()
	topic.Topic, topic.Partitions = tp.Topic, append(topic.Partitions, p)
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = int32(limit.Milliseconds())
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, c.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("removing records of %s: %v", tp, err)
	}
}
