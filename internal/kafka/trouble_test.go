package kafka_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
)

// TestNoFloodOfConnections: brokers that can't be reached are tried again some times a second at most, although
// librdkafka begins its search anew each time.
func TestNoFloodOfConnections(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n.Add(1)
			conn.Close()
		}
	}()
	began := time.Now()
	r := read(t, &kafkatest.Cluster{Addr: l.Addr().String()}, options{properties: props("security.protocol", "ssl")}, "topic")
	kafkatest.Wait(t, "ten connections", func() bool { return n.Load() >= 10 })
	if took := time.Since(began); took < 1500*time.Millisecond {
		t.Errorf("ten connections in %s", took)
	}
	kafkatest.Wait(t, "the reason", func() bool { return r.told("brokers are down: ") })
	r.close()
	l.Close()
	<-closed
}

// told says whether a trouble with this text came.
func (r *reader) told(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range r.troubles {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// TestACommitThatHangs: the coordinator takes a commit and never answers. What is asked of it afterwards waits no longer
// than socket.timeout.ms, and the group is kept.
func TestACommitThatHangs(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	topic := c.Topic(t, "hang", 2)
	r := read(t, c, options{}, topic)
	kafkatest.Wait(t, "the assignment", func() bool { return r.owns() == 2 })
	release, hanging := make(chan struct{}), make(chan struct{})
	defer close(release)
	var first atomic.Bool
	c.Fake.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
		if !first.Swap(true) {
			close(hanging)
			c.Fake.SleepControl(func() { <-release })
		}
		return nil, nil, false
	})
	over := make(chan struct{})
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := r.c.Commit(ctx, []message.Committed{{TopicPartition: at(topic, 0), Offset: 0}}, func() { close(over) }); err == nil {
			t.Error("a commit without an answer succeeded")
		}
	}()
	<-hanging
	began := time.Now()
	kafkatest.Wait(t, "an answer from the coordinator", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := r.c.Committed(ctx, []message.TopicPartition{at(topic, 1)})
		return err == nil
	})
	if took := time.Since(began); took > 20*time.Second || r.owns() != 2 {
		t.Errorf("the coordinator answered after %s; %d partitions are left", took, r.owns())
	}
	<-over
}

// TestABatchThatCanNotBeRead is told and read again and again, and nothing behind it is handed on until it can be read:
// going past it is the operator's.
func TestABatchThatCanNotBeRead(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	topic := c.Topic(t, "broken", 1)
	var fetches atomic.Int64
	var repaired atomic.Bool
	record := []byte{14, 0, 0, 0, 1, 2, 'x', 0} // no key, value x
	c.Fake.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake.KeepControl()
		req, ok := r.(*kmsg.FetchRequest)
		if !ok || len(req.Topics) == 0 {
			return nil, nil, false
		}
		fetches.Add(1)
		resp, ok := req.ResponseKind().(*kmsg.FetchResponse)
		if !ok {
			return nil, nil, false
		}
		p := kmsg.NewFetchResponseTopicPartition()
		p.HighWatermark, p.LastStableOffset, p.LogStartOffset = 2, 2, 0
		p.RecordBatches = append(batch(0, 1, []byte("no gzip")), batch(1, 0, record)...)
		if repaired.Load() {
			p.RecordBatches = append(batch(0, 0, record), batch(1, 0, record)...)
		}
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
		rt.Partitions = append(rt.Partitions, p)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	r := read(t, c, options{}, topic)
	kafkatest.Wait(t, "the trouble", func() bool { return r.told("go past it with ingester skip") })
	before := fetches.Load()
	kafkatest.Wait(t, "more tries", func() bool { return fetches.Load() >= before+2 })
	if n := r.count(); n != 0 {
		t.Errorf("%d records were handed on from behind a batch that can't be read", n)
	}
	repaired.Store(true)
	kafkatest.Wait(t, "both records", func() bool { return r.count() >= 2 })
	if got := r.offsets(at(topic, 0)); !slices.Equal(got[:2], sequence(0, 2)) {
		t.Errorf("offsets %v", got)
	}
}

// batch is one record in Kafka's format; the attributes say how it is packed.
func batch(offset int64, attributes int16, records []byte) []byte {
	b := kmsg.RecordBatch{
		FirstOffset: offset, PartitionLeaderEpoch: -1, Magic: 2, Attributes: attributes, NumRecords: 1, Records: records,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
	}
	b.Length = int32(len(b.AppendTo(nil)) - 12)
	return b.AppendTo(nil)
}
