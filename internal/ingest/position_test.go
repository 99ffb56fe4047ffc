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
		by        string // the installation that committed; empty: not Ferry
		otherID   bool   // the row, and the commit's mark, are of another topic id
		removed   int64  // offsets that Kafka removed
		first     int64
		expired   int64
		rewinds   int
		told      string
	}{
		"nothing known":                     {row: none, committed: none, first: 0},
		"only a committed offset":           {row: none, committed: 40, first: 40},
		"only a row":                        {row: 30, committed: none, first: 30},
		"an operator set the group forward": {row: 30, committed: 40, first: 30, told: "set forward, and not by Ferry"},
		"an operator set the group back":    {row: 30, committed: 10, first: 10, told: "offsets were set back"},
		"a topic that was made again":       {row: 30, committed: none, otherID: true, first: 0, told: "created again"},
		"a committed offset beyond the end": {row: none, committed: 5000, first: 0, told: "beyond the end"},

		"killed before the commit":             {row: 30, committed: 20, by: here, first: 30},
		"the database went back":               {row: 30, committed: 40, by: here, first: 30, rewinds: 1, told: "at an earlier position"},
		"the database went back beyond it all": {row: none, committed: 40, by: here, first: 0, rewinds: 1, told: "lost positions"},
		"another installation, ahead":          {row: 30, committed: 40, by: "elsewhere", first: 30, told: "another installation of Ferry"},
		"another installation, behind":         {row: 30, committed: 20, by: "elsewhere", first: 30, told: "another installation of Ferry"},
		"another installation, no row":         {row: none, committed: 20, by: "elsewhere", first: 20, told: "another installation of Ferry"},
		"a commit in a deleted topic":          {row: none, committed: 20, by: here, otherID: true, first: 0},

		"removed, never read":               {row: none, committed: none, removed: 10, first: 10},
		"removed unread":                    {row: 4, committed: none, removed: 10, first: 10, expired: 6, told: "Kafka removed records"},
		"removed unread, no row":            {row: none, committed: 4, removed: 10, first: 10, expired: 6, told: "Kafka removed records"},
		"removed after it was read":         {row: 10, committed: none, removed: 10, first: 10},
		"set back to what is removed":       {row: 30, committed: 4, removed: 10, first: 10, told: "offsets were set back"},
		"a new topic of which some is gone": {row: 30, committed: none, otherID: true, removed: 10, first: 10, expired: 10, told: "Kafka removed records"},

		"a row beyond the end": {row: 5000, committed: none, first: 0, told: "beyond the end"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
				topic, group, m := c.Topic(t, "start", 1), kafkatest.Name("group"), newMemory()
				produce(t, c, topic, 1, 100)
				p0 := tp(topic, 0)
				id := c.TopicID(t, topic)
				if test.otherID {
					id[0] ^= 0xff
				}
				if test.row != none {
					m.rows[p0] = message.StoredPosition{TopicPartition: p0, TopicID: id, NextOffset: test.row}
				}
				if test.committed != none {
					o := kafkatest.CommittedOffset{Offset: test.committed}
					if test.by != "" {
						o.Metadata = message.CommitMark{Topic: id, Installation: test.by}.String()
					}
					c.CommitMarked(t, group, p0, o)
				}
				if test.removed > 0 {
					c.DeleteRecords(t, p0, test.removed)
				}
				p := run(t, c, m, setup{group: group}, plain(topic))
				wait(t, "the records", func() bool { return m.row(p0) == 100 })
				wait(t, "the commit", func() bool { return committed(t, c, group, topic) })
				if got := m.order[0].Offset; got != test.first || m.stored() != int(100-test.first) {
					t.Errorf("first %d of %d, want %d", got, m.stored(), test.first)
				}
				if n := p.counts.get(&p.counts.rewinds); n != test.rewinds || m.expired != test.expired {
					t.Errorf("%d rewinds and %d expired unread, want %d and %d", n, m.expired, test.rewinds, test.expired)
				}
				if n := p.log.count("partitions=\"[" + topic); test.told != "" && p.log.count(test.told) != 1 || test.told == "" && n > 0 {
					t.Errorf("%q was not told once", test.told)
				}
				mark, ok := message.ParseCommitMark(c.Committed(t, group)[p0].Metadata)
				if !ok || mark != (message.CommitMark{Topic: c.TopicID(t, topic), Installation: here}) {
					t.Errorf("the commit carries %+v, %t", mark, ok)
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
		if !p.log.has("a topic was deleted and created again") {
			t.Error("nobody was told")
		}
	})
}
