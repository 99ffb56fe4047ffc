package ingest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/ingest"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
)

// A topic that keeps its records for longer than a route its messages is warned of, once, with both times; one that matches
// later has its own line.
func TestWindowWarning(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		base := kafkatest.Name("window")
		topic := func(name, kept string) string {
			name = base + "-" + name
			c.CreateTopic(t, name, 1, map[string]string{"retention.ms": kept})
			if c.Fake == nil {
				t.Cleanup(func() { c.DeleteTopic(t, name) })
			}
			return name
		}
		short, equal, long, ever := topic("short", "60000"), topic("equal", "3600000"), topic("long", "7200000"), topic("ever", "-1")
		r := matching(t, "r", base+"-.*", short, equal)
		r.Retention = route.Retention{Delivered: 3 * time.Hour, Failed: time.Hour}
		other := plain(long)
		other.Name, other.Retention = "other", route.Retention{Delivered: 90 * time.Minute, Failed: 9 * time.Hour}
		s := setup{config: func(cfg *ingest.Config) { cfg.ListEvery = often }}
		p := run(t, c, newMemory(), s, r, other)
		const line = "topics keep their records for longer than their messages are kept"
		wait(t, "the warning", func() bool { return p.log.has(line) })
		for _, want := range []string{"level=WARN", "retention.ms", ever + " for ever (route r: 1h)", long + " 2h (route r: 1h)"} {
			if !p.log.has(want) {
				t.Errorf("%q is not in the log", want)
			}
		}
		later := topic("later", "7200001")
		wait(t, "the warning of the topic that came later", func() bool { return p.log.has(later + " 2h0m0.001s (route r: 1h)") })
		if n := p.log.count(line); n != 2 {
			t.Errorf("%d warnings", n)
		}
		for _, not := range []string{short + " 1m", equal + " 1h", "route other"} {
			if p.log.has(not) {
				t.Errorf("%q is in the log", not)
			}
		}
		if !p.isReady() {
			t.Error("not ready")
		}
	})
}

// mute does not say how long topics keep their records.
type mute struct {
	ingest.Source

	asked atomic.Int64
}

func (m *mute) Kept(context.Context, []string) (map[string]time.Duration, error) {
	m.asked.Add(1)
	return nil, errors.New("not for you")
}

// Without an answer there is no warning, and nothing amiss.
func TestWindowUnknown(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	m := &mute{}
	p := run(t, c, newMemory(), setup{source: func(src ingest.Source) ingest.Source {
		m.Source = src
		return m
	}}, plain(c.Topic(t, "topic", 1)))
	wait(t, "the question", func() bool { return p.log.has("not for you") })
	wait(t, "readiness", p.isReady)
	if p.log.has("level=WARN") || m.asked.Load() != 1 {
		t.Errorf("asked %d times, or warned", m.asked.Load())
	}
}
