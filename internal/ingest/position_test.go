package ingest_test

import (
	"testing"

	"github.com/ferry-forward/ferry/internal/ingest"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
)

// TestWhereReadingStarts is the table of position, committed offset and topic.
func TestWhereReadingStarts(t *testing.T) {
	t.Parallel()
	const none = -1
	for name, test := range map[string]struct {
		row       int64
		committed int64
		otherID   bool // the row is of another topic id
		first     int64
	}{
		"nothing known":                     {row: none, committed: none, first: 0},
		"only a committed offset":           {row: none, committed: 40, first: 40},
		"only a row":                        {row: 30, committed: none, first: 30},
		"a row behind the committed offset": {row: 30, committed: 40, first: 30},
		"an operator set the group back":    {row: 30, committed: 10, first: 10},
		"a topic that was made again":       {row: 30, committed: none, otherID: true, first: 0},
		"a committed offset beyond the end": {row: none, committed: 5000, first: 0},
		"a row beyond the end":              {row: 5000, committed: none, first: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
				topic, group, m := c.Topic(t, "start", 1), kafkatest.Name("group"), newMemory()
				produce(t, c, topic, 1, 100)
				p0 := tp(topic, 0)
				if test.row != none {
					id := c.TopicID(t, topic)
					if test.otherID {
						id[0] ^= 0xff
					}
					m.rows[p0] = message.StoredPosition{TopicPartition: p0, TopicID: id, NextOffset: test.row}
				}
				if test.committed != none {
					c.Commit(t, group, p0, test.committed)
				}
				run(t, c, m, setup{group: group}, plain(topic))
				wait(t, "the records", func() bool { return m.row(p0) == 100 })
				wait(t, "the commit", func() bool { return committed(t, c, group, topic) })
				if got := m.order[0].Offset; got != test.first || m.stored() != int(100-test.first) {
					t.Errorf("first %d of %d, want %d", got, m.stored(), test.first)
				}
			})
		})
	}
}

// TestPositionThatMoved: another process, or a database that went back, moved the row. Nothing is stored on top of it,
// and reading goes on from the row.
func TestPositionThatMoved(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]int64{"back": 20, "on": 120, "gone": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
				topic, group, m := c.Topic(t, "moved", 2), kafkatest.Name("group"), newMemory()
				produce(t, c, topic, 2, 100)
				p := run(t, c, m, setup{group: group}, plain(topic))
				wait(t, "the records", func() bool { return m.stored() == 200 })
				wait(t, "the commit", func() bool { return committed(t, c, group, topic) })
				p0 := tp(topic, 0)
				m.mu.Lock()
				row := m.rows[p0]
				row.NextOffset = to
				m.rows[p0] = row
				if to < 0 {
					delete(m.rows, p0)
				}
				m.known = map[message.TopicPartition]bool{p0: true}
				m.order = nil
				m.mu.Unlock()
				produce(t, c, topic, 2, 50)
				wait(t, "the rest", func() bool { return m.row(p0) == 150 && m.row(tp(topic, 1)) == 150 })
				wait(t, "the commit", func() bool { return committed(t, c, group, topic) })
				rewinds, duplicates, stored := 1, 80, 300
				switch to {
				case -1:
					duplicates = 100
				case 120:
					rewinds, duplicates, stored = 0, 0, 280
				}
				if p.counts.get(&p.counts.rewinds) != rewinds || m.count(message.IngestDuplicate) != duplicates || m.stored() != stored {
					t.Errorf("%d rewinds, %d read again, %d stored; want %d, %d, %d", p.counts.get(&p.counts.rewinds),
						m.count(message.IngestDuplicate), m.stored(), rewinds, duplicates, stored)
				}
			})
		})
	}
}

func TestATopicThatComesLater(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		there, later, m := c.Topic(t, "there", 1), kafkatest.Name("later"), newMemory()
		n := produce(t, c, there, 1, 10)
		p := run(t, c, m, setup{}, plain(there, later))
		wait(t, "the topic that is there", func() bool { return m.stored() == n })
		wait(t, "readiness with the topic's name", func() bool { return p.why(ingest.PartTopics) != "" })
		if why := p.why(ingest.PartTopics); p.isReady() || why != "not there yet: "+later+"; create them, or take them out of the route file" {
			t.Errorf("not ready because %q", why)
		}
		c.CreateTopic(t, later, 2, nil)
		n += produce(t, c, later, 2, 10)
		wait(t, "the topic that came later", func() bool { return m.stored() == n })
		wait(t, "readiness", p.isReady)
		c.AddPartitions(t, later, 3)
		n += produce(t, c, later, 3, 10)
		wait(t, "the new partition", func() bool { return m.stored() == n })
	})
}

// TestATopicThatIsMadeAgain under a running ingester starts over, under its new id.
func TestATopicThatIsMadeAgain(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, m := c.Topic(t, "again", 1), newMemory()
		n := produce(t, c, topic, 1, 100)
		p := run(t, c, m, setup{}, plain(topic))
		wait(t, "the records", func() bool { return m.stored() == n })
		c.DeleteTopic(t, topic)
		c.CreateTopic(t, topic, 1, nil)
		n += produce(t, c, topic, 1, 10)
		wait(t, "the new records", func() bool { return m.stored() == n })
		if !p.log.has("the topic was deleted and created again") {
			t.Error("nobody was told")
		}
	})
}
