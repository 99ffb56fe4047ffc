package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	ck "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/ferry-forward/ferry/internal/message"
)

// Range reads the records of a partition from one offset up to another, without being a member of a group: nobody has to
// give up a partition for it, and nothing is committed. It is not for use by several goroutines at once.
type Range struct {
	c    *Consumer
	tp   message.TopicPartition
	next int64 // all before it was handed on, or is no record
	to   int64

	ahead *message.Record // came, and found no room in what was returned

	// What the last poll brought.
	came    *message.Record
	lost    bool
	trouble error
}

// Errors of Read.
var (
	// ErrSilent says that nothing came for 10 s.
	ErrSilent = errors.New("nothing came of it for 10 s")
	// ErrOffsetLost says that the next offset is not in Kafka any more.
	ErrOffsetLost = errors.New("the next offset is not in Kafka any more")
)

const (
	silence   = 10 * time.Second
	rangePoll = 100 * time.Millisecond // bounds how long the end of the context is not noticed
)

// NewRange begins to read [from, to) of a partition. It fails on wrong properties, not on brokers that are away. Nothing
// that belongs to members of the group is set, as with an Operator.
func NewRange(cfg Config, tp message.TopicPartition, from, to int64) (*Range, error) {
	cfg.Properties = withoutMembers(cfg.Properties)
	r := &Range{tp: tp, next: from, to: to}
	c, err := New(cfg, r)
	if err != nil {
		return nil, err
	}
	r.c = c
	c.assigned[tp] = &partition{started: true, next: from}
	if err := c.c.Assign([]ck.TopicPartition{{Topic: &tp.Topic, Partition: tp.Partition, Offset: ck.Offset(from)}}); err != nil {
		return nil, errors.Join(fmt.Errorf("beginning to read %s: %w", tp, err), c.Close(context.Background()))
	}
	return r, nil
}

// Close frees everything. When the context ends first, the rest goes on in the background.
func (r *Range) Close(ctx context.Context) error { return r.c.Close(ctx) }

// Read returns the next records, n of them and size bytes at most (one that is larger comes alone), and the offset that is
// next after them. It returns fewer only at the end, where next is the end of the range: whatever the last offsets are,
// records or markers of transactions or nothing any more. The records have no topic id.
func (r *Range) Read(ctx context.Context, n, size int) (records []*message.Record, next int64, err error) {
	bytes := 0
	for len(records) < n {
		record, err := r.record(ctx)
		if err != nil {
			return nil, 0, err
		}
		if record == nil {
			break
		}
		if bytes += record.Size(); bytes > size && len(records) > 0 {
			r.ahead = record
			return records, record.Offset, nil
		}
		records = append(records, record)
	}
	return records, r.next, nil
}

// record returns the next record, nil at the end of the range.
func (r *Range) record(ctx context.Context) (*message.Record, error) {
	if r.ahead != nil {
		record := r.ahead
		r.ahead = nil
		return record, nil
	}
	for since, at := time.Now(), r.next; r.next < r.to; {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("reading %s: %w", r.tp, context.Cause(ctx))
		}
		r.came = nil
		if err := r.c.Poll(rangePoll); err != nil {
			return nil, err
		}
		switch {
		case r.came != nil:
			return r.came, nil
		case r.lost:
			return nil, fmt.Errorf("reading %s at %d: %w", r.tp, r.next, ErrOffsetLost)
		case r.next > at:
			since, at = time.Now(), r.next
		case time.Since(since) > silence:
			err := fmt.Errorf("reading %s at %d: %w", r.tp, r.next, ErrSilent)
			if r.trouble != nil {
				err = fmt.Errorf("%w (%w)", err, r.trouble)
			}
			return nil, err
		}
	}
	return nil, nil //nolint:nilnil // there is no record, and nothing is wrong
}

// Record keeps the record for Read. One behind the end says that all before it was read.
func (r *Range) Record(m *message.Record) {
	switch {
	case m.Offset < r.next: // we did not seek: the topic is not what it was
		r.lost = true
	case m.Offset >= r.to:
		r.next = r.to
	default:
		r.came, r.next = m, m.Offset+1
	}
}

// End notes that everything before the offset was read.
func (r *Range) End(_ message.TopicPartition, offset int64) { r.next = min(max(r.next, offset), r.to) }

// OffsetLost notes that nothing more will come.
func (r *Range) OffsetLost() { r.lost = true }

// Trouble keeps the error, for when nothing comes.
func (r *Range) Trouble(err error) { r.trouble = err }

// Assigned does not come.
func (*Range) Assigned([]message.TopicPartition) {}

// Revoked does not come.
func (*Range) Revoked([]message.TopicPartition, bool) {}
