package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	ck "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/ferry-forward/ferry/internal/message"
)

// Operator asks where a group stands and commits for it, without being one of its members.
type Operator struct {
	c    *Consumer
	seen *bystander
	stop chan struct{}
	done sync.WaitGroup
}

// ofMembers are properties that only members of a group need. With the group.instance.id of one, a commit would be taken
// for that member's.
var ofMembers = append([]string{"group.instance.id", "group.protocol", "group.remote.assignor"}, leaveOut...)

func withoutMembers(properties map[string]string) map[string]string {
	rest := maps.Clone(properties)
	maps.DeleteFunc(rest, func(name, _ string) bool { return slices.Contains(ofMembers, name) })
	return rest
}

// NewOperator connects to nothing yet. It fails on wrong properties.
func NewOperator(cfg Config) (*Operator, error) {
	cfg.Properties = withoutMembers(cfg.Properties)
	seen := &bystander{}
	c, err := New(cfg, seen)
	if err != nil {
		return nil, err
	}
	o := &Operator{c: c, seen: seen, stop: make(chan struct{})}
	o.done.Go(o.poll)
	return o, nil
}

// pollEvery bounds how long a poll that brings nothing holds up the end.
const pollEvery = 50 * time.Millisecond

// poll takes what librdkafka has to tell: why it can't connect.
func (o *Operator) poll() {
	for {
		select {
		case <-o.stop:
			return
		default:
		}
		if err := o.c.Poll(pollEvery); err != nil {
			o.seen.Trouble(err)
			return
		}
	}
}

// Close frees everything. When the context ends first, the rest goes on in the background.
func (o *Operator) Close(ctx context.Context) error {
	close(o.stop)
	o.done.Wait()
	return o.c.Close(ctx)
}

// Standing is what Kafka knows about a partition, and about a group in it.
type Standing struct {
	TopicID    message.TopicID // zero: the brokers have no topic ids
	Partitions int             // how many the topic has, from 0 on; 0: there is no such topic
	// First is the first offset there is, and End the one after the last that can be read: where a transaction is open,
	// that is before it.
	First, End int64
	Committed  *message.Committed // nil: the group committed nothing
}

// Standing asks where the group stands in a partition. Without the partition, only the first two fields are set.
func (o *Operator) Standing(ctx context.Context, tp message.TopicPartition) (Standing, error) {
	s, err := o.standing(ctx, tp)
	return s, o.because(err)
}

// because adds to an error what librdkafka had to tell last.
func (o *Operator) because(err error) error {
	if trouble := o.seen.last(); err != nil && trouble != nil {
		return fmt.Errorf("%w (%w)", err, trouble)
	}
	return err
}

func (o *Operator) standing(ctx context.Context, tp message.TopicPartition) (s Standing, err error) {
	found, err := o.c.describe(ctx, []string{tp.Topic})
	if err != nil || len(found) == 0 {
		return Standing{}, err
	}
	s.TopicID, s.Partitions = topicID(found[0].TopicID), len(found[0].Partitions)
	if int(tp.Partition) >= s.Partitions {
		return s, nil
	}
	committed, err := o.c.Committed(ctx, []message.TopicPartition{tp})
	if err != nil {
		return Standing{}, err
	}
	if len(committed) > 0 {
		s.Committed = &committed[0]
	}
	s.First, s.End, err = o.c.Bounds(ctx, tp)
	return s, err
}

// Offsets returns what the group committed in the topics, whoever reads them, and the ids of those topics that exist.
func (o *Operator) Offsets(ctx context.Context, topics []string) (map[string]message.TopicID, []message.Committed, error) {
	ids, err := o.c.TopicIDs(ctx, topics)
	var committed []message.Committed
	if err == nil {
		committed, err = o.c.GroupOffsets(ctx, topics)
	}
	return ids, committed, o.because(err)
}

// TopicID asks for the id of a topic; false when there is none of the name.
func (o *Operator) TopicID(ctx context.Context, topic string) (message.TopicID, bool, error) {
	ids, err := o.c.TopicIDs(ctx, []string{topic})
	id, there := ids[topic]
	return id, there, o.because(err)
}

// Commit commits for a group that has no members. It returns false where the group has some: then Kafka takes commits
// of theirs only.
func (o *Operator) Commit(ctx context.Context, offset message.Committed) (bool, error) {
	err := o.c.Commit(ctx, []message.Committed{offset}, func() {})
	var e ck.Error
	if errors.As(err, &e) {
		switch e.Code() {
		case ck.ErrUnknownMemberID, ck.ErrIllegalGeneration, ck.ErrRebalanceInProgress, ck.ErrStaleMemberEpoch, ck.ErrFencedMemberEpoch:
			return false, nil
		}
	}
	return err == nil, err
}

// bystander is an Events of a consumer that is not subscribed to anything. It keeps the last trouble.
type bystander struct {
	mu      sync.Mutex
	trouble error
}

func (b *bystander) last() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.trouble
}

// Trouble keeps the error.
func (b *bystander) Trouble(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trouble = err
}

// Assigned does not come.
func (*bystander) Assigned([]message.TopicPartition) {}

// Revoked does not come.
func (*bystander) Revoked([]message.TopicPartition, bool) {}

// Record does not come.
func (*bystander) Record(*message.Record) {}

// End does not come.
func (*bystander) End(message.TopicPartition, int64) {}

// OffsetLost does not come.
func (*bystander) OffsetLost() {}
