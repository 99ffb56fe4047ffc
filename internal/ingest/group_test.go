package ingest_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/ingest"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
)

// TestRebalanceUnderLoad adds and removes members while records flow. Nothing may be lost, and no committed offset may
// go back or be ahead of what is stored.
func TestRebalanceUnderLoad(t *testing.T) {
	t.Parallel()
	for name, properties := range map[string]map[string]string{
		"cooperative-sticky": nil,
		"range":              {"partition.assignment.strategy": "range"},
		"consumer":           {"group.protocol": "consumer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
				topic, group, m := c.Topic(t, "rebalance", 6), kafkatest.Name("group"), newMemory()
				s := setup{group: group, properties: properties}
				stop, produced, producing := make(chan struct{}), atomic.Int64{}, sync.WaitGroup{}
				producing.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							produced.Add(int64(produce(t, c, topic, 6, 10)))
						}
					}
				})
				back := watchCommitted(t, c, group, m, stop, &producing)
				first := run(t, c, m, s, plain(topic))
				wait(t, "the first member", func() bool { return ingest.Owned(first.g) == 6 })
				second := run(t, c, m, s, plain(topic))
				third := run(t, c, m, s, plain(topic))
				thirds := func() bool {
					return ingest.Owned(first.g) == 2 && ingest.Owned(second.g) == 2 && ingest.Owned(third.g) == 2
				}
				wait(t, "thirds", thirds)
				first.end()
				wait(t, "halves", func() bool { return ingest.Owned(second.g) == 3 && ingest.Owned(third.g) == 3 })
				second.end()
				wait(t, "all in one", func() bool { return ingest.Owned(third.g) == 6 })
				close(stop)
				producing.Wait()
				wait(t, "all records", func() bool { return m.stored() == int(produced.Load()) })
				wait(t, "the commit", func() bool { return committed(t, c, group, topic) })
				if n := back.Load(); n > 0 {
					t.Errorf("%d times a committed offset went back or was ahead of what is stored", n)
				}
				m.inOrder(t)
			})
		})
	}
}

// watchCommitted looks at committed offsets until stop, and counts those that went back or are ahead of the rows.
func watchCommitted(t *testing.T, c *kafkatest.Cluster, group string, m *memory, stop chan struct{}, wg *sync.WaitGroup) *atomic.Int64 {
	wrong, last := &atomic.Int64{}, map[message.TopicPartition]int64{}
	wg.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			for tp, o := range c.Committed(t, group) {
				if o.Offset < last[tp] || o.Offset > m.row(tp) {
					wrong.Add(1)
				}
				last[tp] = o.Offset
			}
		}
	})
	return wrong
}

// TestRevokeWaitsForItsTransaction: a partition is given up only after the transaction that has records of it.
func TestRevokeWaitsForItsTransaction(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, group, m := c.Topic(t, "revoke", 2), kafkatest.Name("group"), newMemory()
		s := setup{group: group}
		first := run(t, c, m, s, plain(topic))
		wait(t, "the first member", func() bool { return ingest.Owned(first.g) == 2 })
		inside, hold, once := make(chan struct{}), make(chan struct{}), sync.Once{}
		m.fail(func(_ context.Context, b *message.Batch) error {
			if b != nil {
				once.Do(func() { close(inside) })
				<-hold
			}
			return nil
		})
		n := produce(t, c, topic, 2, 10)
		<-inside
		second := run(t, c, m, s, plain(topic))
		wait(t, "the revocation", func() bool { return first.log.has("partitions revoked") })
		for began := time.Now(); time.Since(began) < 2*time.Second; { // ten heartbeats
			if c.Ends(t, topic); second.log.has("partitions assigned") {
				t.Fatal("the second member has a partition whose transaction still runs elsewhere")
			}
		}
		close(hold)
		wait(t, "one for each", func() bool { return ingest.Owned(first.g) == 1 && ingest.Owned(second.g) == 1 })
		n += produce(t, c, topic, 2, 10)
		wait(t, "all records", func() bool { return m.stored() == n })
		if first.log.has("still running") || second.log.has("moved on") {
			t.Error("the partition was handed on before its transaction ended")
		}
	})
}

// TestAssignmentWhileTheDatabaseIsAway: partitions that are taken over wait, and are then read from their rows.
func TestAssignmentWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, group, m := c.Topic(t, "handover", 2), kafkatest.Name("group"), newMemory()
		s := setup{group: group}
		first := run(t, c, m, s, plain(topic))
		n := produce(t, c, topic, 2, 10)
		wait(t, "the records", func() bool { return m.stored() == n })
		m.fail(func(context.Context, *message.Batch) error { return errAway })
		n += produce(t, c, topic, 2, 10)
		wait(t, "trouble", func() bool { return first.why(ingest.PartDatabase) != "" })
		second := run(t, c, m, s, plain(topic))
		wait(t, "the second member's trouble", func() bool { return second.why(ingest.PartDatabase) != "" })
		m.fail(nil)
		wait(t, "all records", func() bool { return m.stored() == n })
		wait(t, "readiness", func() bool { return first.isReady() && second.isReady() })
		wait(t, "the commit", func() bool { return committed(t, c, group, topic) })
		m.inOrder(t)
	})
}
