package kafka_test

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
)

func TestRecordsComeAsTheyAre(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic := c.Topic(t, "as-they-are", 1)
		big := bytes.Repeat([]byte("x"), 5<<20)
		at1 := time.UnixMilli(1).UTC()
		c.Produce(t, topic,
			kafkatest.Record{Key: nil, Value: nil, Timestamp: time.UnixMilli(-1)},
			kafkatest.Record{Key: []byte{}, Value: []byte{}, Timestamp: time.UnixMilli(0)},
			kafkatest.Record{Key: []byte("k\x00\xff"), Value: []byte("v\x00\xff"), Timestamp: at1, Headers: []message.Header{
				{Name: "a", Value: []byte{2}}, {Name: "a", Value: nil}, {Name: "b", Value: []byte{}},
			}},
			kafkatest.Record{Value: big},
			kafkatest.Value("last"),
		)
		r := read(t, c, options{}, topic)
		kafkatest.Wait(t, "five records", func() bool { return r.count() == 5 })
		kafkatest.Wait(t, "the end", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.ends[at(topic, 0)] == 5 })
		r.mu.Lock()
		defer r.mu.Unlock()
		first, second, third := r.records[0], r.records[1], r.records[2]
		if first.Key != nil || first.Value != nil || !first.Tombstone() || !first.Timestamp.IsZero() {
			t.Errorf("null record: %+v", first)
		}
		if second.Key == nil || second.Value == nil || second.Tombstone() || second.Timestamp.UnixMilli() != 0 || second.Timestamp.IsZero() {
			t.Errorf("empty record: %+v", second)
		}
		if string(third.Key) != "k\x00\xff" || string(third.Value) != "v\x00\xff" || !third.Timestamp.Equal(at1) {
			t.Errorf("third record: %+v", third)
		}
		if len(third.Headers) != 3 || third.Headers[1].Value != nil || third.Headers[2].Value == nil || third.Headers[0].Value[0] != 2 {
			t.Errorf("headers: %+v", third.Headers)
		}
		if !bytes.Equal(r.records[3].Value, big) || string(r.records[4].Value) != "last" {
			t.Error("the large record, or the one after it, is not as it was")
		}
		if end, ok := r.c.End(at(topic, 0)); !ok || end != 5 {
			t.Errorf("end %d %t", end, ok)
		}
	})
}

func TestNothingIsReadUntilStart(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic := c.Topic(t, "start", 2)
		for i := range 20 {
			c.Produce(t, topic, kafkatest.Record{Partition: int32(i % 2), Value: []byte("x")})
		}
		r := read(t, c, options{hold: true, from: map[message.TopicPartition]int64{at(topic, 0): 7}}, topic)
		kafkatest.Wait(t, "the assignment", func() bool { return r.owns() == 2 })
		for range 20 {
			r.on(func() error { return nil }) // polls go on
		}
		if n := r.count(); n != 0 {
			t.Fatalf("%d records before Start", n)
		}
		r.mu.Lock()
		r.hold = false
		r.mu.Unlock()
		kafkatest.Wait(t, "records", func() bool { return r.count() == 13 })
		if got := r.offsets(at(topic, 0)); !slices.Equal(got, sequence(7, 10)) {
			t.Errorf("partition 0: %v", got)
		}

		// And again from elsewhere, while it is read.
		r.on(func() error { return r.c.Start(map[message.TopicPartition]int64{at(topic, 0): 2}) })
		kafkatest.Wait(t, "records", func() bool { return r.count() == 21 })
		if got := r.offsets(at(topic, 0)); !slices.Equal(got, append(sequence(7, 10), sequence(2, 10)...)) {
			t.Errorf("partition 0: %v", got)
		}
		if got := r.offsets(at(topic, 1)); !slices.Equal(got, sequence(0, 10)) {
			t.Errorf("partition 1: %v", got)
		}
	})
}

func TestAnOffsetThatIsGoneIsTold(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic := c.Topic(t, "gone", 2)
		c.Produce(t, topic, kafkatest.Value("a"), kafkatest.Value("b"), kafkatest.Record{Partition: 1, Value: []byte("c")})
		r := read(t, c, options{from: map[message.TopicPartition]int64{at(topic, 0): 1000}}, topic)
		kafkatest.Wait(t, "the loss", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.lost == 1 })
		first, end, err := r.c.Bounds(t.Context(), at(topic, 0))
		if err != nil || first != 0 || end != 2 {
			t.Errorf("bounds %d %d %v", first, end, err)
		}
		r.on(func() error { return r.c.Start(map[message.TopicPartition]int64{at(topic, 0): 0}) })
		kafkatest.Wait(t, "records", func() bool { return r.count() == 3 })
	})
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"cooperative-sticky", "range"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
				topic := c.Topic(t, "pause", 2)
				produce := func(n int) {
					var records []kafkatest.Record
					for range n {
						records = append(records, kafkatest.Value("x"), kafkatest.Record{Partition: 1, Value: []byte("y")})
					}
					c.Produce(t, topic, records...)
				}
				produce(500)
				r := read(t, c, options{properties: map[string]string{"partition.assignment.strategy": strategy}}, topic)
				kafkatest.Wait(t, "records", func() bool { return r.count() > 10 })
				both := []message.TopicPartition{at(topic, 0), at(topic, 1)}
				for range 5 {
					r.on(func() error { return r.c.Pause(both) })
					before := r.count()
					produce(10)
					for range 10 {
						r.on(func() error { return nil })
					}
					if n := r.count(); n != before {
						t.Fatalf("%d records while paused", n-before)
					}
					r.on(func() error { return r.c.Resume(both) })
					kafkatest.Wait(t, "more records", func() bool { return r.count() > before })
				}
				// One starts anew while the other is paused, and stays so.
				r.on(func() error { return r.c.Pause(both[1:]) })
				paused := r.offsets(both[1])
				r.on(func() error { return r.c.Start(map[message.TopicPartition]int64{both[0]: 500}) })
				kafkatest.Wait(t, "the first partition's records", func() bool {
					got := r.offsets(both[0])
					return len(got) > 0 && got[len(got)-1] == 549
				})
				if got := r.offsets(both[1]); len(got) != len(paused) {
					t.Errorf("%d records of the paused partition", len(got)-len(paused))
				}
				r.on(func() error { return r.c.Resume(both[1:]) })
				kafkatest.Wait(t, "the rest", func() bool { return len(r.offsets(both[1])) == 550 })
				if got := r.offsets(both[1]); !slices.Equal(got, sequence(0, 550)) {
					t.Errorf("partition 1 has gaps or repeats: %v", got)
				}
			})
		})
	}
}

func TestStrategies(t *testing.T) {
	t.Parallel()
	for name, properties := range map[string]map[string]string{
		"cooperative-sticky": nil,
		"range":              {"partition.assignment.strategy": "range"},
		"consumer":           {"group.protocol": "consumer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
				topic, o := c.Topic(t, "strategy", 6), options{properties: properties, group: kafkatest.Name("group")}
				produce := func(round string) {
					for p := range int32(6) {
						c.Produce(t, topic, kafkatest.Record{Partition: p, Value: []byte(round + "-" + strconv.Itoa(int(p)))})
					}
				}
				first := read(t, c, o, topic)
				kafkatest.Wait(t, "the first member's assignment", func() bool { return first.owns() == 6 })
				produce("one")
				kafkatest.Wait(t, "the first round", func() bool { return first.count() >= 6 })

				second := read(t, c, o, topic)
				kafkatest.Wait(t, "halves", func() bool { return first.owns() == 3 && second.owns() == 3 })
				produce("two")
				kafkatest.Wait(t, "the second round", func() bool { return distinct(first, second) == 12 })

				second.close()
				kafkatest.Wait(t, "all partitions again", func() bool { return first.owns() == 6 })
				produce("three")
				kafkatest.Wait(t, "the third round", func() bool { return distinct(first, second) == 18 })
				for p := range int32(6) {
					got := first.offsets(at(topic, p))
					if len(got) == 0 || got[len(got)-1] != 2 {
						t.Errorf("partition %d: %v", p, got)
					}
				}
			})
		})
	}
}

// distinct counts the records that some of the readers have read.
func distinct(readers ...*reader) int {
	seen := map[message.Position]bool{}
	for _, r := range readers {
		r.mu.Lock()
		for _, m := range r.records {
			seen[m.Position] = true
		}
		r.mu.Unlock()
	}
	return len(seen)
}

func TestATopicThatComesLater(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		there, later := c.Topic(t, "there", 1), kafkatest.Name("later")
		c.Produce(t, there, kafkatest.Value("a"))
		r := read(t, c, options{}, there, later)
		kafkatest.Wait(t, "the topic that is there", func() bool { return r.count() == 1 })
		ids, err := r.c.TopicIDs(t.Context(), []string{there, later})
		if err != nil || len(ids) != 1 || ids[there] != c.TopicID(t, there) {
			t.Errorf("topic ids %v %v, want that of %s", ids, err, there)
		}
		c.CreateTopic(t, later, 2, nil)
		c.Produce(t, later, kafkatest.Value("b"), kafkatest.Record{Partition: 1, Value: []byte("c")})
		kafkatest.Wait(t, "the topic that came later", func() bool { return r.count() == 3 })
		c.AddPartitions(t, later, 3)
		c.Produce(t, later, kafkatest.Record{Partition: 2, Value: []byte("d")})
		kafkatest.Wait(t, "the new partition", func() bool { return r.count() == 4 })
	})
}

func TestTopicNames(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		one, other := c.Topic(t, "one", 1), c.Topic(t, "__other", 3)
		r := read(t, c, options{}, one)
		list := func() []string {
			t.Helper()
			names, err := r.c.TopicNames(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return names
		}
		if names := list(); !slices.Contains(names, one) || !slices.Contains(names, other) || slices.Contains(names, "nothing") {
			t.Errorf("there are %v", names)
		}
		c.DeleteTopic(t, other)
		kafkatest.Wait(t, "the topic to be gone", func() bool { return !slices.Contains(list(), other) })
		r.close()
		if names, err := r.c.TopicNames(t.Context()); err == nil {
			t.Errorf("a closed consumer lists %v", names)
		}
	})
}

func TestCommitAndCommitted(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, group := c.Topic(t, "commit", 2), kafkatest.Name("group")
		c.Produce(t, topic, kafkatest.Value("a"), kafkatest.Value("b"))
		r := read(t, c, options{group: group}, topic)
		kafkatest.Wait(t, "records", func() bool { return r.count() == 2 })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		over := make(chan struct{})
		want := message.Committed{TopicPartition: at(topic, 0), Offset: 2, Metadata: "ours"}
		if err := r.c.Commit(ctx, []message.Committed{want}, func() { close(over) }); err != nil {
			t.Fatal(err)
		}
		<-over
		got, err := r.c.Committed(ctx, []message.TopicPartition{at(topic, 0), at(topic, 1)})
		if err != nil || !slices.Equal(got, []message.Committed{want}) {
			t.Errorf("committed %+v %v", got, err)
		}
		if got := c.Committed(t, group)[at(topic, 0)]; got.Offset != 2 || got.Metadata != "ours" {
			t.Errorf("Kafka has %+v", got)
		}
	})
}

func TestBrokersThatAreAway(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	c.Addr = "127.0.0.1:1" // nobody listens
	r := read(t, c, options{}, "topic")
	kafkatest.Wait(t, "trouble", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.troubles) > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := r.c.TopicIDs(ctx, []string{"topic"}); err == nil {
		t.Error("topic ids without a broker")
	}
	if _, err := r.c.Committed(ctx, []message.TopicPartition{at("topic", 0)}); err == nil {
		t.Error("committed offsets without a broker")
	}
	if _, err := r.c.TopicNames(ctx); err == nil {
		t.Error("a list of topics without a broker")
	}
	r.close()
	if _, err := r.c.TopicIDs(t.Context(), []string{"topic"}); err == nil {
		t.Error("topic ids of a closed consumer")
	}
}
