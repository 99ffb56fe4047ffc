package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ferry-forward/ferry/internal/kafka"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
)

func rangeOf(t *testing.T, c *kafkatest.Cluster, tp message.TopicPartition, from, to int64, properties map[string]string) *kafka.Range {
	t.Helper()
	r, err := kafka.NewRange(kafka.Config{Brokers: []string{c.Addr}, Group: "range", Properties: properties}, tp, from, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return r
}

// all reads a range to its end, n records at a time, and returns the offsets of its records.
func all(t *testing.T, r *kafka.Range, from, to int64, n, size int) []int64 {
	t.Helper()
	var offsets []int64
	for next := from; next < to; {
		records, after, err := r.Read(t.Context(), n, size)
		if err != nil {
			t.Fatal(err)
		}
		if len(records) > n || after <= next || after > to || len(records) < n && size > 1<<20 && after != to {
			t.Fatalf("%d records, %d → %d", len(records), next, after)
		}
		for _, m := range records {
			if m.Offset < next || m.Offset >= after {
				t.Errorf("%d is not one of %d → %d", m.Offset, next, after)
			}
			next = m.Offset + 1
			offsets = append(offsets, m.Offset)
		}
		next = after
	}
	return offsets
}

// TestRange reads every part of a partition that has transactions, aborted ones at its end too, and one that is open.
func TestRange(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic := c.Topic(t, "range", 1)
		tp := at(topic, 0)
		x := c.Transactions(t)
		value := func(n int) (records []kafkatest.Record) {
			for i := range n {
				records = append(records, kafkatest.Value(fmt.Sprintf("%s %d", topic, i)))
			}
			return records
		}
		x.Abort(topic, value(2)...)
		c.Produce(t, topic, value(5)...)
		x.Commit(topic, value(3)...)
		x.Abort(topic, value(4)...)
		x.Commit(topic, value(1)...)
		x.Abort(topic, value(2)...)
		end := c.Ends(t, topic)[tp]
		visible := c.Visible(t, tp)
		if len(visible) != 9 || visible[8] >= end-3 {
			t.Fatalf("%v of %d", visible, end)
		}
		for from := range end {
			for to := from + 1; to <= end; to += 3 {
				var want []int64
				for _, o := range visible {
					if from <= o && o < to {
						want = append(want, o)
					}
				}
				r := rangeOf(t, c, tp, from, to, nil)
				if got := all(t, r, from, to, 4, 1<<30); !slices.Equal(got, want) {
					t.Errorf("[%d, %d): %v, want %v", from, to, got, want)
				}
			}
		}
	})
}

// TestRangeOfACompactedTopic: what compaction removed at the end of the range is passed.
func TestRangeOfACompactedTopic(t *testing.T) {
	t.Parallel()
	c := kafkatest.Real(t)
	topic := kafkatest.Name("compacted")
	c.CreateTopic(t, topic, 1, map[string]string{
		"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "max.compaction.lag.ms": "200", "min.compaction.lag.ms": "0",
	})
	t.Cleanup(func() { c.DeleteTopic(t, topic) })
	tp, want := at(topic, 0), []int64(nil)
	for i := range 20 {
		c.Produce(t, topic, kafkatest.Record{Key: []byte("same"), Value: fmt.Append(nil, i)})
	}
	kafkatest.Wait(t, "compaction", func() bool {
		// A segment is closed by what comes after it.
		c.Produce(t, topic, kafkatest.Record{Key: []byte("same"), Value: []byte("more")})
		want = c.Visible(t, tp)
		return want[0] >= 20
	})
	const to = 20 // nothing before it is left
	r := rangeOf(t, c, tp, 3, to, nil)
	if got := all(t, r, 3, to, 4, 1<<30); len(got) != 0 {
		t.Errorf("%v", got)
	}
	end := c.Ends(t, topic)[tp]
	r = rangeOf(t, c, tp, 3, end, nil)
	if got := all(t, r, 3, end, 4, 1<<30); got[len(got)-1] != end-1 {
		t.Errorf("%v of %d", got, end)
	}
}

// TestRangeIsBounded in bytes: a record that does not fit comes with the next ones, and one that is larger alone.
func TestRangeIsBounded(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	topic := c.Topic(t, "range", 1)
	for _, n := range []int{400, 400, 3000, 10, 10, 10, 900} {
		c.Produce(t, topic, kafkatest.Value(strings.Repeat("x", n)))
	}
	r := rangeOf(t, c, at(topic, 0), 0, 7, nil)
	var batches []string
	for next := int64(0); next < 7; {
		records, after, err := r.Read(t.Context(), 10, 1500)
		if err != nil {
			t.Fatal(err)
		}
		next = after
		batches = append(batches, fmt.Sprintf("%d→%d", len(records), next))
	}
	if got := fmt.Sprint(batches); got != "[2→2 1→3 3→6 1→7]" {
		t.Error(got)
	}
	r = rangeOf(t, c, at(topic, 0), 0, 7, nil)
	if got := all(t, r, 0, 7, 1, 1500); !slices.Equal(got, sequence(0, 7)) {
		t.Errorf("%v", got)
	}
}

// TestRangeBesideTheGroup: members of the group lose nothing, though the properties are those of one of them.
func TestRangeBesideTheGroup(t *testing.T) {
	t.Parallel()
	for name, properties := range map[string]map[string]string{
		"classic": {"group.instance.id": "one"}, "consumer": {"group.protocol": "consumer", "group.instance.id": "one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
				topic, group := c.Topic(t, "range", 2), kafkatest.Name("range")
				c.Produce(t, topic, kafkatest.Value("a"), kafkatest.Value("b"), kafkatest.Value("c"))
				member := read(t, c, options{group: group, properties: properties}, topic)
				kafkatest.Wait(t, "the records", func() bool { return member.owns() == 2 && member.count() == 3 })
				r, err := kafka.NewRange(kafka.Config{Brokers: []string{c.Addr}, Group: group, Properties: properties}, at(topic, 0), 0, 2)
				if err != nil {
					t.Fatal(err)
				}
				if got := all(t, r, 0, 2, 10, 1<<30); !slices.Equal(got, []int64{0, 1}) {
					t.Errorf("%v", got)
				}
				if err := r.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if got := c.Committed(t, group)[at(topic, 0)]; got.Offset > 0 {
					t.Errorf("committed %+v", got)
				}
				c.Produce(t, topic, kafkatest.Value("d"))
				kafkatest.Wait(t, "the next record", func() bool { return member.count() == 4 })
				member.mu.Lock()
				defer member.mu.Unlock()
				if member.fatal != nil || len(member.owned) != 2 {
					t.Errorf("the member has %v: %v", member.owned, member.fatal)
				}
			})
		})
	}
}

// TestRangeIsLost: what Kafka removes while it is read is told.
func TestRangeIsLost(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	topic := c.Topic(t, "range", 1)
	c.Produce(t, topic, kafkatest.Value("a"), kafkatest.Value("b"), kafkatest.Value("c"))
	c.DeleteRecords(t, at(topic, 0), 2)
	for _, from := range []int64{1, 7} {
		r := rangeOf(t, c, at(topic, 0), from, 8, nil)
		if _, _, err := r.Read(t.Context(), 10, 1<<20); !errors.Is(err, kafka.ErrOffsetLost) {
			t.Errorf("from %d: %v", from, err)
		}
	}
}

// TestRangeIsSilent: a broker that sends nothing is not waited for for ever, and neither is one when somebody stops it.
func TestRangeIsSilent(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	topic := c.Topic(t, "range", 1)
	c.Produce(t, topic, kafkatest.Value("a"), kafkatest.Value("b"))
	began := time.Now()
	r := rangeOf(t, c, at(topic, 0), 0, 3, nil) // offset 2 is not there
	_, _, err := r.Read(t.Context(), 10, 1<<20)
	if took := time.Since(began); !errors.Is(err, kafka.ErrSilent) || took < 10*time.Second || took > 13*time.Second {
		t.Errorf("%v after %v", err, took)
	}
	c.Fake.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake.KeepControl()
		c.Fake.SleepControl(func() { <-t.Context().Done() })
		return nil, nil, false
	})
	r = rangeOf(t, c, at(topic, 0), 0, 2, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, _, err := r.Read(ctx, 10, 1<<20); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
