package kafkatest_test

import (
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

func TestHelpers(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, group := c.Topic(t, "helpers", 2), kafkatest.Name("helpers")
		offsets := c.Produce(t, topic,
			kafkatest.Value("a"),
			kafkatest.Record{Value: nil, Key: []byte{}, Timestamp: time.UnixMilli(-1)},
			kafkatest.Record{Partition: 1, Value: []byte{}, Headers: []message.Header{{Name: "h"}}},
		)
		if offsets[0] != 0 || offsets[1] != 1 || offsets[2] != 0 {
			t.Errorf("offsets %v", offsets)
		}
		tp := message.TopicPartition{Topic: topic, Partition: 0}
		if end := c.Ends(t, topic)[tp]; end != 2 {
			t.Errorf("the end of %s is %d", tp, end)
		}
		c.Commit(t, group, tp, 1)
		if got := c.Committed(t, group)[tp]; got.Offset != 1 {
			t.Errorf("committed %+v", got)
		}
		if lag := c.Lag(t, group, topic); lag != 2 {
			t.Errorf("lag %d, want 2", lag)
		}
		if (c.TopicID(t, topic) == message.TopicID{}) {
			t.Error("no topic id")
		}
		before := c.TopicID(t, topic)
		c.DeleteTopic(t, topic)
		c.CreateTopic(t, topic, 3, nil)
		if c.TopicID(t, topic) == before {
			t.Error("a topic that was made again has its old id")
		}
		c.AddPartitions(t, topic, 4)
	})
}

func TestBrokerRestarts(t *testing.T) {
	t.Parallel()
	b, err := kafkatest.NewBroker(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	c := kafkatest.At(t, b.Addr)
	topic := c.Topic(t, "restarts", 1)
	c.Produce(t, topic, kafkatest.Value("a"))
	b.Kill()
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	c = kafkatest.At(t, b.Addr)
	if got := c.Produce(t, topic, kafkatest.Value("b")); got[0] != 1 {
		t.Errorf("after a restart the next offset is %d", got[0])
	}
}
