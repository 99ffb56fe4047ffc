package kafka

import (
	"context"

	"github.com/ferry-forward/ferry/internal/message"
)

// GroupOffsets returns what the group committed for all partitions of the topics, whoever reads them. It asks as a
// consumer does: librdkafka 2.15 aborts the process when the connection to the coordinator fails while an admin request
// is looking for it (its issue 4605), so that no admin request may go there. Descriptions of topics go to any broker.
func (c *Consumer) GroupOffsets(ctx context.Context, topics []string) ([]message.Committed, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	found, err := c.describe(ctx, topics)
	if err != nil {
		return nil, err
	}
	var tps []message.TopicPartition
	for _, d := range found {
		for _, p := range d.Partitions {
			tps = append(tps, message.TopicPartition{Topic: d.Name, Partition: int32(p.Partition)})
		}
	}
	if len(tps) == 0 {
		return nil, nil
	}
	return c.Committed(ctx, tps)
}
