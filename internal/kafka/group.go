package kafka

import (
	"context"
	"fmt"

	ck "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/ferry-forward/ferry/internal/message"
)

// GroupOffsets returns what the group committed for all partitions of the topics, whoever reads them. It asks as a
// consumer does: librdkafka 2.15 aborts the process when the connection to the coordinator fails while an admin request
// is looking for it (its issue 4605), so that no admin request may go there.
func (c *Consumer) GroupOffsets(ctx context.Context, topics []string) ([]message.Committed, error) {
	var tps []message.TopicPartition
	for _, topic := range topics {
		n, err := c.partitions(ctx, topic)
		if err != nil {
			return nil, err
		}
		for p := range n {
			tps = append(tps, message.TopicPartition{Topic: topic, Partition: p})
		}
	}
	if len(tps) == 0 {
		return nil, nil
	}
	return c.Committed(ctx, tps)
}

// partitions returns how many partitions a topic has; 0 when it is not there.
func (c *Consumer) partitions(ctx context.Context, topic string) (int32, error) {
	if err := c.enter(); err != nil {
		return 0, err
	}
	defer c.leave()
	metadata, err := c.c.GetMetadata(&topic, false, timeoutMs(ctx))
	if err != nil {
		return 0, fmt.Errorf("asking for the partitions of %s: %w", topic, err)
	}
	t := metadata.Topics[topic]
	if t.Error.Code() != ck.ErrNoError {
		return 0, nil //nolint:nilerr // the watch of the topics tells
	}
	return int32(len(t.Partitions)), nil
}
