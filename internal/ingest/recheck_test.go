package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ferry-forward/ferry/internal/ingest"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
)

// TestIdlePartitionsOfADatabaseThatWentBack: where no records come, no transaction finds out. All partitions are read
// again, told in one line.
func TestIdlePartitionsOfADatabaseThatWentBack(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, group, m := c.Topic(t, "idle", 3), kafkatest.Name("group"), newMemory()
		n := produce(t, c, topic, 3, 50)
		p := run(t, c, m, setup{group: group}, plain(topic))
		wait(t, "the records", func() bool { return m.stored() == n })
		wait(t, "the commit", func() bool { return committed(t, c, group, topic) })
		ingest.Recheck(p.g) // all is well: nothing happens
		m.mu.Lock()
		for tp, row := range m.rows {
			row.NextOffset = 20
			m.rows[tp] = row
		}
		m.messages = map[string]message.Incoming{}
		m.order = nil
		m.mu.Unlock()
		ingest.Recheck(p.g)
		wait(t, "what was lost", func() bool { return m.stored() == n-3*20 })
		wait(t, "the commit", func() bool { return committed(t, c, group, topic) })
		if r := p.counts.get(&p.counts.rewinds); r != 3 || p.log.count("at an earlier position") != 1 {
			t.Errorf("%d rewinds in %d lines, want 3 in one", r, p.log.count("at an earlier position"))
		}
		m.inOrder(t)
	})
}

// TestAnotherInstallation reads a part of the group's partitions into another database.
func TestAnotherInstallation(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, group := c.Topic(t, "shared", 2), kafkatest.Name("group")
		produce(t, c, topic, 2, 10)
		first := run(t, c, newMemory(), setup{group: group}, plain(topic))
		wait(t, "the commit", func() bool { return committed(t, c, group, topic) })
		ingest.LookAtGroup(first.g)
		if why := first.why(ingest.PartKafka); why != "" {
			t.Errorf("not ready: %s", why)
		}
		second := run(t, c, newMemory(), setup{group: group, config: func(c *ingest.Config) { c.Installation = "elsewhere" }}, plain(topic))
		wait(t, "one for each", func() bool { return ingest.Owned(first.g) == 1 && ingest.Owned(second.g) == 1 })
		wait(t, "the second's word", func() bool { return second.log.has("another installation of Ferry") })
		produce(t, c, topic, 2, 10)
		wait(t, "the commit", func() bool { return committed(t, c, group, topic) })
		for p, other := range map[*process]string{first: "elsewhere", second: here} {
			ingest.LookAtGroup(p.g)
			if why := p.why(ingest.PartKafka); !strings.Contains(why, "used by another installation of Ferry as well ("+other+")") {
				t.Errorf("not ready because %q", why)
			}
		}
		second.end()
		wait(t, "all in one", func() bool { return ingest.Owned(first.g) == 2 })
		wait(t, "the first's marks", func() bool {
			ingest.LookAtGroup(first.g)
			return first.why(ingest.PartKafka) == ""
		})
	})
}

var errSilent = errors.New("the coordinator says nothing")

// TestASilentCoordinator never answers a commit. Partitions start all the same, and what comes is stored.
func TestASilentCoordinator(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	topic, group, m, done := c.Topic(t, "silent", 4), kafkatest.Name("group"), newMemory(), make(chan struct{})
	c.Fake.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake.KeepControl()
		select {
		case <-done:
			return nil, nil, false
		default:
		}
		c.Fake.SleepControl(func() { <-done })
		return nil, errSilent, true
	})
	n := produce(t, c, topic, 4, 50)
	p := run(t, c, m, setup{group: group}, plain(topic))
	wait(t, "the records", func() bool { return m.stored() == n })
	n += produce(t, c, topic, 4, 50)
	wait(t, "the rest", func() bool { return m.stored() == n })
	if p.log.has("partitions lost") {
		t.Error("the group took the process for dead")
	}
	m.inOrder(t)
	close(done)
	wait(t, "the commit", func() bool { return committed(t, c, group, topic) })
}

// TestPausesAreTold with their reason.
func TestPausesAreTold(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	topic, m := c.Topic(t, "told", 2), newMemory()
	n := produce(t, c, topic, 2, 10)
	p := run(t, c, m, setup{config: func(c *ingest.Config) { c.Writers = 1 }}, plain(topic))
	wait(t, "the records", func() bool { return m.stored() == n })
	m.fail(func(context.Context, *message.Batch) error { return errAway })
	n += produce(t, c, topic, 2, 10)
	line := func(what, reason string) func() bool {
		return func() bool {
			return p.log.count(fmt.Sprintf("level=INFO msg=\"partitions %s\" partitions=\"[%s/0 %s/1]\" reason=\"%s\"", what, topic, topic, reason)) == 1
		}
	}
	wait(t, "the pause", line("paused", "the database takes nothing"))
	m.fail(nil)
	wait(t, "the records", func() bool { return m.stored() == n })
	wait(t, "the end of the pause", line("resumed", "the database takes records again"))
}
