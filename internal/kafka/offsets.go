package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	ck "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/ferry-forward/ferry/internal/message"
)

// requestLimit bounds a request when the context has no deadline.
const requestLimit = 10 * time.Second

// Commit commits offsets with their metadata. It waits for the coordinator's answer, at most until the context ends;
// the request itself can't be called back, so the result of one that timed out is unknown. done is called when the
// request is really over, which may be later than Commit returns: until then the offsets can still arrive.
func (c *Consumer) Commit(ctx context.Context, offsets []message.Committed, done func()) error {
	if err := c.enter(); err != nil {
		done()
		return err
	}
	parts := make([]ck.TopicPartition, len(offsets))
	for i, o := range offsets {
		parts[i] = ck.TopicPartition{Topic: &o.Topic, Partition: o.Partition, Offset: ck.Offset(o.Offset), Metadata: &o.Metadata}
	}
	result := make(chan error, 1)
	go func() {
		defer c.leave()
		defer done()
		answers, err := c.c.CommitOffsets(parts)
		for _, a := range answers {
			if err == nil && a.Error != nil {
				err = fmt.Errorf("%s: %w", toTP(a), a.Error)
			}
		}
		result <- err
	}()
	select {
	case err := <-result:
		if err != nil {
			return fmt.Errorf("committing the offsets of %d partitions: %w", len(offsets), err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("committing the offsets of %d partitions: %w", len(offsets), context.Cause(ctx))
	}
}

// Committed returns what the group committed. Partitions without a committed offset are left out.
func (c *Consumer) Committed(ctx context.Context, tps []message.TopicPartition) ([]message.Committed, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	parts := make([]ck.TopicPartition, len(tps))
	for i, tp := range tps {
		parts[i] = ck.TopicPartition{Topic: &tp.Topic, Partition: tp.Partition}
	}
	answers, err := c.c.Committed(parts, timeoutMs(ctx))
	var e ck.Error
	switch {
	case errors.As(err, &e) && e.Code() == ck.ErrGroupIDNotFound:
		return nil, nil // some brokers know no group that has neither members nor offsets
	case err != nil:
		return nil, fmt.Errorf("reading the group's committed offsets: %w", err)
	}
	var committed []message.Committed
	for _, a := range answers {
		if a.Error != nil {
			return nil, fmt.Errorf("reading the group's committed offset of %s: %w", toTP(a), a.Error)
		}
		if a.Offset < 0 {
			continue
		}
		o := message.Committed{TopicPartition: toTP(a), Offset: int64(a.Offset)}
		if a.Metadata != nil {
			o.Metadata = *a.Metadata
		}
		committed = append(committed, o)
	}
	return committed, nil
}

// Bounds asks the broker for the first offset of a partition and the one after its last record.
func (c *Consumer) Bounds(ctx context.Context, tp message.TopicPartition) (first, end int64, err error) {
	if err := c.enter(); err != nil {
		return 0, 0, err
	}
	defer c.leave()
	first, end, err = c.c.QueryWatermarkOffsets(tp.Topic, tp.Partition, timeoutMs(ctx))
	if err != nil {
		return 0, 0, fmt.Errorf("asking for the bounds of %s: %w", tp, err)
	}
	return first, end, nil
}

// End returns the offset after the partition's last record as the last fetch told it; false before the first one.
func (c *Consumer) End(tp message.TopicPartition) (int64, bool) {
	if c.enter() != nil {
		return 0, false
	}
	defer c.leave()
	_, end, err := c.c.GetWatermarkOffsets(tp.Topic, tp.Partition)
	return end, err == nil && end >= 0
}

// TopicIDs returns the ids of those of the topics that exist. The zero id stands for a broker without topic ids.
func (c *Consumer) TopicIDs(ctx context.Context, topics []string) (map[string]message.TopicID, error) {
	found, err := c.describe(ctx, topics)
	if err != nil {
		return nil, err
	}
	ids := make(map[string]message.TopicID, len(topics))
	for _, d := range found {
		ids[d.Name] = topicID(d.TopicID)
	}
	return ids, nil
}

// describe returns what the cluster says of those of the topics that exist.
func (c *Consumer) describe(ctx context.Context, topics []string) ([]ck.TopicDescription, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	// The context ends first: its cause says which limit it was.
	result, err := c.admin.DescribeTopics(ctx, ck.NewTopicCollectionOfTopicNames(topics),
		ck.SetAdminRequestTimeout(time.Duration(timeoutMs(ctx))*time.Millisecond+time.Second))
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err != nil {
		return nil, fmt.Errorf("describing %d topics: %w", len(topics), err)
	}
	found := make([]ck.TopicDescription, 0, len(topics))
	for _, d := range result.TopicDescriptions {
		switch d.Error.Code() {
		case ck.ErrNoError:
			found = append(found, d)
		case ck.ErrUnknownTopicOrPart, ck.ErrUnknownTopic, ck.ErrUnknownTopicID:
		default:
			return nil, fmt.Errorf("describing topic %s: %w", d.Name, d.Error)
		}
	}
	return found, nil
}

// TopicNames returns the names of all topics that the cluster shows to this process, in no order.
//
// The answer is one broker's. One that has just started may not know all topics yet.
func (c *Consumer) TopicNames(ctx context.Context) ([]string, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	type answer struct {
		metadata *ck.Metadata
		err      error
	}
	result := make(chan answer, 1)
	limit := timeoutMs(ctx)
	go func() { // it can't be called back
		defer c.leave()
		metadata, err := c.c.GetMetadata(nil, true, limit)
		result <- answer{metadata, err}
	}()
	var a answer
	select {
	case a = <-result:
	case <-ctx.Done():
		a.err = context.Cause(ctx)
	}
	if a.err != nil {
		return nil, fmt.Errorf("listing the topics: %w", a.err)
	}
	names := make([]string, 0, len(a.metadata.Topics))
	for name, t := range a.metadata.Topics {
		switch t.Error.Code() {
		case ck.ErrUnknownTopicOrPart, ck.ErrUnknownTopic, ck.ErrTopicAuthorizationFailed:
		default:
			names = append(names, name) // also one whose partitions have no leader at the moment
		}
	}
	return names, nil
}

func topicID(u ck.UUID) message.TopicID {
	var id message.TopicID
	for i := range 8 {
		id[i] = byte(u.GetMostSignificantBits() >> (56 - 8*i))
		id[i+8] = byte(u.GetLeastSignificantBits() >> (56 - 8*i))
	}
	return id
}

// timeoutMs is the time left, at least a moment.
func timeoutMs(ctx context.Context) int {
	left := requestLimit
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	return max(1, int(left.Milliseconds()))
}
