package ingest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/ingest"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
)

func TestRecordsAreStoredAndThenCommitted(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, group, m := c.Topic(t, "basic", 6), kafkatest.Name("group"), newMemory()
		n := produce(t, c, topic, 6, 500)
		// What Kafka was told must never be ahead of what is stored. Each partition's second transaction waits for a commit
		// after its first, so that there are commits while much is buffered and not stored.
		var early atomic.Int64
		seen, first := sync.Map{}, make(chan struct{})
		var once, much sync.Once
		var polls atomic.Int64
		polled := make(chan struct{})
		s := setup{
			group:  group,
			config: func(c *ingest.Config) { c.BatchSize = 100 },
			source: func(s ingest.Source) ingest.Source {
				return &spy{Source: s, poll: func() {
					if polls.Add(1) > int64(n/2) {
						much.Do(func() { close(polled) })
					}
				}, commit: func(offsets []message.Committed) {
					for _, o := range offsets {
						if o.Offset > m.row(o.TopicPartition) {
							early.Add(1)
						}
					}
					once.Do(func() { close(first) })
				}}
			},
		}
		m.before = func(_ context.Context, b *message.Batch) error {
			if b == nil {
				return nil
			}
			<-polled
			if _, again := seen.LoadOrStore(b.Advances[0].TopicPartition, true); again {
				<-first
			}
			return nil
		}
		p := run(t, c, m, s, plain(topic))
		wait(t, "all records", func() bool { return m.stored() == n })
		wait(t, "the commit", func() bool { return committed(t, c, group, topic) })
		m.inOrder(t)
		if early.Load() > 0 {
			t.Errorf("%d offsets were committed before their records were stored", early.Load())
		}
		wait(t, "readiness", p.isReady)
		wait(t, "lag 0 of all partitions", func() bool {
			p.counts.mu.Lock()
			defer p.counts.mu.Unlock()
			for _, lag := range p.counts.lag {
				if lag != 0 {
					return false
				}
			}
			return len(p.counts.lag) == 6
		})
		if got := c.Committed(t, group)[tp(topic, 0)].Metadata; !strings.HasPrefix(got, "ferry topic="+c.TopicID(t, topic).String()) {
			t.Errorf("the commit's metadata is %q", got)
		}
		m.mu.Lock()
		if transactions := len(m.batches); transactions > n/5 {
			t.Errorf("%d transactions for %d records: batches do not grow", transactions, n)
		}
		m.mu.Unlock()
		if took := p.end(); took > 10*time.Second {
			t.Errorf("the stop took %s", took)
		}

		// And on from there, by the next process.
		more := produce(t, c, topic, 6, 10)
		run(t, c, m, setup{group: group}, plain(topic))
		wait(t, "the rest", func() bool { return m.stored() == n+more })
		if d := m.count(message.IngestDuplicate); d > 0 {
			t.Errorf("%d records were read twice", d)
		}
	})
}

// spy looks at polls and at commits on their way to Kafka.
type spy struct {
	ingest.Source
	poll   func()
	commit func(offsets []message.Committed)
}

func (s *spy) Poll(timeout time.Duration) error {
	s.poll()
	return s.Source.Poll(timeout)
}

func (s *spy) Commit(ctx context.Context, offsets []message.Committed, done func()) error {
	s.commit(offsets)
	return s.Source.Commit(ctx, offsets, done)
}

// TestWritersWorkSideBySide needs both writers in a transaction at once, each with partitions of its own.
func TestWritersWorkSideBySide(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	topic, m := c.Topic(t, "writers", 4), newMemory()
	n := produce(t, c, topic, 4, 100)
	both, once := make(chan struct{}), sync.Once{}
	m.before = func(ctx context.Context, b *message.Batch) error {
		if b == nil {
			return nil
		}
		m.mu.Lock()
		if m.running == 2 {
			once.Do(func() { close(both) })
		}
		for _, a := range b.Advances {
			m.inside[a.TopicPartition]++
			if m.inside[a.TopicPartition] > 1 {
				t.Errorf("two transactions at once for %v", a.TopicPartition)
			}
		}
		m.mu.Unlock()
		<-both
		m.mu.Lock()
		for _, a := range b.Advances {
			m.inside[a.TopicPartition]--
		}
		m.mu.Unlock()
		return nil
	}
	run(t, c, m, setup{}, plain(topic))
	wait(t, "all records", func() bool { return m.stored() == n })
	m.inOrder(t)
}

func TestBatchesKeepTheirBounds(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, m := c.Topic(t, "bounds", 1), newMemory()
		var records []kafkatest.Record
		for i := range 300 {
			size := 100
			if i%50 == 0 {
				size = 20_000 // more than a batch may have
			}
			records = append(records, kafkatest.Value(fmt.Sprintf("%d%s", i, strings.Repeat("x", size))))
		}
		c.Produce(t, topic, records...)
		var bytes, size atomic.Int64
		m.before = func(_ context.Context, b *message.Batch) error {
			if b == nil {
				return nil
			}
			sum := 0
			for _, in := range b.Incoming {
				sum += in.Record.Size()
			}
			if sum > 8000 && len(b.Incoming) > 1 {
				bytes.Add(1)
			}
			if len(b.Incoming) > 30 {
				size.Add(1)
			}
			return nil
		}
		run(t, c, m, setup{config: func(c *ingest.Config) { c.BatchSize, c.BatchBytes, c.BufferBytes = 30, 8000, 50_000 }}, plain(topic))
		wait(t, "all records", func() bool { return m.stored() == 300 })
		m.inOrder(t)
		if bytes.Load()+size.Load() > 0 {
			t.Errorf("%d batches over their bytes, %d over their size", bytes.Load(), size.Load())
		}
	})
}

// TestBufferedBytesAreBounded holds the database while much more waits in Kafka than may be in memory, then lets go.
func TestBufferedBytesAreBounded(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, m := c.Topic(t, "bounded", 4), newMemory()
		value := strings.Repeat("x", 1000)
		var records []kafkatest.Record
		for i := range 4000 {
			records = append(records, kafkatest.Record{Partition: int32(i % 4), Value: fmt.Appendf(nil, "%d%s", i, value)})
		}
		c.Produce(t, topic, records...)
		hold := make(chan struct{})
		m.before = func(_ context.Context, b *message.Batch) error {
			if b != nil {
				<-hold
			}
			return nil
		}
		const bound = 200_000
		p := run(t, c, m, setup{config: func(c *ingest.Config) { c.BufferBytes, c.BatchBytes = bound, 50_000 }}, plain(topic))
		wait(t, "the pause", func() bool { return p.log.has("partitions paused") && ingest.Paused(p.g) == 4 })
		if n := ingest.Buffered(p.g); n > bound+2*2000 {
			t.Errorf("%d bytes are buffered, with a bound of %d", n, bound)
		}
		close(hold)
		wait(t, "all records", func() bool { return m.stored() == 4000 })
		wait(t, "the buffer to be empty", func() bool { return ingest.Buffered(p.g) == 0 && ingest.Paused(p.g) == 0 })
		m.inOrder(t)
		if d := m.count(message.IngestDuplicate); d > 0 {
			t.Errorf("pauses made %d records come twice", d)
		}
	})
}

// TestASlowDatabaseDoesNotCostTheGroup stalls the database for longer than a member may not poll.
func TestASlowDatabaseDoesNotCostTheGroup(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, group, m := c.Topic(t, "slow", 2), kafkatest.Name("group"), newMemory()
		n := produce(t, c, topic, 2, 50)
		stall := time.After(9 * time.Second)
		m.before = func(_ context.Context, b *message.Batch) error {
			if b != nil {
				<-stall
				m.fail(nil)
			}
			return nil
		}
		p := run(t, c, m, setup{
			group:      group,
			properties: map[string]string{"max.poll.interval.ms": "6000", "session.timeout.ms": "6000"},
			config:     func(c *ingest.Config) { c.Writers = 1 },
		}, plain(topic))
		wait(t, "all records", func() bool { return m.stored() == n })
		wait(t, "the commit", func() bool { return committed(t, c, group, topic) })
		if p.log.has("partitions lost") || p.log.has("partitions revoked") {
			t.Error("the group took the process for dead")
		}
		if d := m.count(message.IngestDuplicate); d > 0 {
			t.Errorf("%d records were read twice", d)
		}
	})
}

func TestTheDatabaseIsAwayAndComesBack(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, group, m := c.Topic(t, "away", 3), kafkatest.Name("group"), newMemory()
		away := func(context.Context, *message.Batch) error { return errAway }
		m.fail(away) // from the start: not even positions can be read
		n := produce(t, c, topic, 3, 20)
		p := run(t, c, m, setup{group: group}, plain(topic))
		wait(t, "red readiness", func() bool { return strings.Contains(p.why(ingest.PartDatabase), errAway.Error()) })
		m.fail(nil)
		wait(t, "all records", func() bool { return m.stored() == n })
		wait(t, "readiness", p.isReady)
		wait(t, "the commit", func() bool { return committed(t, c, group, topic) })

		m.fail(away) // and again, while it runs
		before := c.Committed(t, group)
		n += produce(t, c, topic, 3, 20)
		wait(t, "red readiness", func() bool { return strings.Contains(p.why(ingest.PartDatabase), errAway.Error()) })
		wait(t, "paused partitions", func() bool { return ingest.Paused(p.g) == 3 })
		for tp, o := range c.Committed(t, group) {
			if o != before[tp] {
				t.Errorf("%v was committed at %d while the database was away", tp, o.Offset)
			}
		}
		m.fail(nil)
		wait(t, "all records", func() bool { return m.stored() == n })
		wait(t, "readiness", p.isReady)
		wait(t, "the commit", func() bool { return committed(t, c, group, topic) })
		m.inOrder(t)
		if d := m.count(message.IngestDuplicate); d > 0 {
			t.Errorf("%d records were read twice", d)
		}
	})
}

// TestStopWhileTheDatabaseIsAway must end in time, commit nothing that is not stored, and leave nothing out.
func TestStopWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(ctx context.Context, b *message.Batch) error{
		"failing": func(context.Context, *message.Batch) error { return errAway },
		"hanging": func(ctx context.Context, b *message.Batch) error { <-ctx.Done(); return ctx.Err() },
		// The first half of a batch is not stored, the second would be.
		"refusing": func(_ context.Context, b *message.Batch) error {
			switch {
			case b == nil:
				return nil
			case len(b.Incoming) > 4:
				return rowFault{errAway}
			case b.Incoming[0].Record.Offset < 150:
				return errAway
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
				topic, group, m := c.Topic(t, "stop", 1), kafkatest.Name("group"), newMemory()
				n := produce(t, c, topic, 1, 100)
				p := run(t, c, m, setup{group: group}, plain(topic))
				wait(t, "the records", func() bool { return m.stored() == n })
				m.fail(before)
				n += produce(t, c, topic, 1, 100)
				wait(t, "a record in the buffer", func() bool { return ingest.Buffered(p.g) > 0 })
				if took := p.end(); took > 10*time.Second {
					t.Errorf("the stop took %s", took)
				}
				if got := c.Committed(t, group)[tp(topic, 0)].Offset; got > m.row(tp(topic, 0)) {
					t.Errorf("committed %d, stored %d", got, m.row(tp(topic, 0)))
				}
				m.fail(nil)
				run(t, c, m, setup{group: group}, plain(topic))
				wait(t, "all records", func() bool { return m.stored() == n })
				m.inOrder(t)
			})
		})
	}
}

// TestStopDrains stores and commits what was read before SIGTERM.
func TestStopDrains(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, group, m := c.Topic(t, "drain", 4), kafkatest.Name("group"), newMemory()
		n := produce(t, c, topic, 4, 2000)
		p := run(t, c, m, setup{group: group}, plain(topic))
		wait(t, "some records", func() bool { return m.stored() > 100 })
		if took := p.end(); took > 10*time.Second {
			t.Errorf("the stop took %s", took)
		}
		for tp, o := range c.Committed(t, group) {
			if row := m.row(tp); o.Offset != row {
				t.Errorf("%v: committed %d, stored up to %d", tp, o.Offset, row)
			}
		}
		run(t, c, m, setup{group: group}, plain(topic))
		wait(t, "all records", func() bool { return m.stored() == n })
		if d := m.count(message.IngestDuplicate); d > 0 {
			t.Errorf("%d records were read twice", d)
		}
		m.inOrder(t)
	})
}
