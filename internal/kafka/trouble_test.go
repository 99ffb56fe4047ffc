package kafka_test

import (
	"context"
	"net"
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
