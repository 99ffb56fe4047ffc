package kafka_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/kafka"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
)

func operate(t *testing.T, addr, group string, properties map[string]string) *kafka.Operator {
	t.Helper()
	o, err := kafka.NewOperator(kafka.Config{Brokers: []string{addr}, Group: group, Properties: properties})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := o.Close(ctx); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return o
}

func TestOperator(t *testing.T) {
	t.Parallel()
	for protocol, more := range map[string]string{"classic": "", "consumer": "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) { operator(t, c, more) })
		})
	}
}

// operator asks and commits for a group without members, and asks only for one that has some. It has the properties of a
// member, and its place is not taken.
func operator(t *testing.T, c *kafkatest.Cluster, protocol string) {
	topic, group := c.Topic(t, "operator", 2), kafkatest.Name("operator")
	properties := map[string]string{"group.instance.id": "one"}
	if protocol != "" {
		properties["group.protocol"] = protocol
		properties["group.remote.assignor"] = "range"
	}
	c.Produce(t, topic, kafkatest.Value("a"), kafkatest.Value("b"), kafkatest.Value("c"))
	c.DeleteRecords(t, at(topic, 0), 1)
	o := operate(t, c.Addr, group, properties)
	stands := func(tp message.TopicPartition) kafka.Standing {
		t.Helper()
		s, err := o.Standing(t.Context(), tp)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := stands(at("nothing-"+topic, 0)); s != (kafka.Standing{}) {
		t.Errorf("of a topic that is not there: %+v", s)
	}
	id := c.TopicID(t, topic)
	if got, there, err := o.TopicID(t.Context(), topic); got != id || !there || err != nil {
		t.Error("the id:", got, there, err)
	}
	if got, there, err := o.TopicID(t.Context(), "nothing-"+topic); there || err != nil {
		t.Error("the id of a topic that is not there:", got, err)
	}
	if s := stands(at(topic, 2)); s != (kafka.Standing{TopicID: id, Partitions: 2}) {
		t.Errorf("of a partition that is not there: %+v", s)
	}
	if s := stands(at(topic, 0)); s != (kafka.Standing{TopicID: id, Partitions: 2, First: 1, End: 3}) {
		t.Errorf("of a partition: %+v", s)
	}
	two := message.Committed{TopicPartition: at(topic, 0), Offset: 2, Metadata: "mark"}
	if taken, err := o.Commit(t.Context(), two); !taken || err != nil {
		t.Fatal(taken, err)
	}
	if s := stands(at(topic, 0)); s.Committed == nil || *s.Committed != two {
		t.Errorf("after a commit: %+v", s.Committed)
	}
	r := read(t, c, options{group: group, properties: properties}, topic)
	kafkatest.Wait(t, "the assignment", func() bool { return r.owns() == 2 })
	three := two
	three.Offset = 3
	if taken, err := o.Commit(t.Context(), three); taken || err != nil {
		t.Error("a commit for a group with members:", taken, err)
	}
	if s := stands(at(topic, 0)); *s.Committed != two {
		t.Errorf("it arrived: %+v", s.Committed)
	}
	r.on(func() error { return r.c.Commit(t.Context(), []message.Committed{three}, func() {}) })
	if s := stands(at(topic, 0)); *s.Committed != three {
		t.Errorf("the member can't commit any more: %+v", s.Committed)
	}
}

// TestOperatorWithoutBrokers: the answer comes when the limit is over, and says what is wrong.
func TestOperatorWithoutBrokers(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	silent, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0") // takes connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for addr, want := range map[string]string{"127.0.0.1:1": "Connection refused", silent.Addr().String(): "deadline"} {
		o := operate(t, addr, "group", nil)
		if want == "Connection refused" {
			kafkatest.Wait(t, "the reason", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_, err := o.Standing(ctx, at("topic", 0))
				return err != nil && strings.Contains(err.Error(), want)
			})
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		began := time.Now()
		_, err := o.Standing(ctx, at("topic", 0))
		if err == nil || !strings.Contains(err.Error(), want) || time.Since(began) > 3*time.Second {
			t.Errorf("%s: %v after %s", addr, err, time.Since(began))
		}
		cancel()
	}
	if _, err := kafka.NewOperator(kafka.Config{Brokers: []string{"127.0.0.1:1"}, Group: "group", Properties: map[string]string{"no.such.thing": "1"}}); err == nil {
		t.Error("a wrong property is taken")
	}
}
