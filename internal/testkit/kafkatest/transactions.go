package kafkatest

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ferry-forward/ferry/internal/message"
)

// Transactions is a producer that puts records into transactions, one at a time.
type Transactions struct {
	t      testing.TB
	client *kgo.Client
}

// Transactions returns a transactional producer.
func (c *Cluster) Transactions(t testing.TB) *Transactions {
	t.Helper()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(c.Addr),
		kgo.TransactionalID(Name("transactions")),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
	)
	if err != nil {
		t.Fatalf("connecting to Kafka at %s: %v", c.Addr, err)
	}
	t.Cleanup(client.Close)
	return &Transactions{t: t, client: client}
}

// Commit writes records in one transaction.
func (x *Transactions) Commit(topic string, records ...Record) {
	x.t.Helper()
	x.run(kgo.TryCommit, topic, records)
}

// Abort writes records in one transaction and gives it up when they are all in Kafka.
func (x *Transactions) Abort(topic string, records ...Record) {
	x.t.Helper()
	x.run(kgo.TryAbort, topic, records)
}

func (x *Transactions) run(end kgo.TransactionEndTry, topic string, records []Record) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	batch := make([]*kgo.Record, len(records))
	for i, r := range records {
		batch[i] = r.of(topic)
	}
	err := x.client.BeginTransaction()
	if err == nil {
		err = x.client.ProduceSync(ctx, batch...).FirstErr()
	}
	if err == nil {
		err = x.client.EndTransaction(ctx, end)
	}
	if err != nil {
		x.t.Fatalf("a transaction of %d records to %s: %v", len(records), topic, err)
	}
}

// Visible returns the offsets of the records that a consumer gets of a partition, from its first record to its end.
// Markers of transactions, records of aborted ones and what was compacted away are not among them.
func (c *Cluster) Visible(t testing.TB, tp message.TopicPartition) []int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	end := c.Ends(t, tp.Topic)[tp]
	client, err := kgo.NewClient(
		kgo.SeedBrokers(c.Addr),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{tp.Topic: {tp.Partition: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // a marker may be the last there is
	)
	if err != nil {
		t.Fatalf("connecting to Kafka at %s: %v", c.Addr, err)
	}
	defer client.Close()
	var offsets []int64
	for next := int64(0); next < end; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("reading %s up to %d, now at %d: %v", tp, end, next, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if !r.Attrs.IsControl() && r.Offset < end {
				offsets = append(offsets, r.Offset)
			}
		})
	}
	return offsets
}
