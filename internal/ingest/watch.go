package ingest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

const (
	watchInterval = time.Minute // topic ids are read again
	watchSoon     = 2 * time.Second
	watchLimit    = 10 * time.Second
)

var errWatch = errors.New("no answer about the topics within 10 s")

// watchLoop looks at the topics: which are missing, and whether one was deleted and created again.
func (g *Ingester) watchLoop(ctx context.Context) {
	for {
		limited, cancel := context.WithTimeoutCause(ctx, watchLimit, errWatch)
		wait := g.lookAtTopics(limited)
		cancel()
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		t.Stop()
	}
}

func (g *Ingester) lookAtTopics(ctx context.Context) time.Duration {
	ids, err := g.src.TopicIDs(ctx, g.topics)
	if err != nil {
		g.health.fault(PartKafka, faultBroker, err.Error())
		g.health.fault(PartTopics, faultTopics, "unknown while Kafka does not answer")
		return watchSoon
	}
	g.health.clear(PartKafka, faultBroker)
	missing := slices.DeleteFunc(slices.Clone(g.topics), func(t string) bool { _, ok := ids[t]; return ok })
	g.recreated(ids)
	if len(missing) > 0 {
		g.health.fault(PartTopics, faultTopics, "missing: "+strings.Join(missing, ", "))
		return watchSoon
	}
	g.health.clear(PartTopics, faultTopics)
	return watchInterval
}

// recreated restarts the partitions of topics that have another id than their records were given.
func (g *Ingester) recreated(ids map[string]message.TopicID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for tp, p := range g.parts {
		if id, ok := ids[tp.Topic]; ok && p.phase != starting && id != p.topicID {
			p.check = true
			g.restart(p)
		}
	}
}
