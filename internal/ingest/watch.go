package ingest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

const (
	watchInterval = 10 * time.Second // a topic that was made again is read under its old id for so long
	watchSoon     = time.Second      // while something is wrong
	watchLimit    = 5 * time.Second
)

var errWatchLimit = errors.New("no answer from Kafka within 5 s")

// watchLoop looks at the topics every ten seconds, more often while something is wrong with them or with Kafka, and when
// they are to be listed: it keeps both parts' readiness, and finds topics that are new, and topics that were deleted
// and created again.
func (g *Ingester) watchLoop(ctx context.Context) {
	for {
		wait := g.lookAtTopics(ctx)
		g.compareWindows(ctx)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			continue
		case <-g.watch:
		}
		timer.Stop()
		// Troubles come in swarms.
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchSoon):
		}
	}
}

// lookAtTopics returns how long it is until the next look.
func (g *Ingester) lookAtTopics(ctx context.Context) time.Duration {
	listed := g.listTopics(ctx)
	missing, err := g.lookAtIDs(ctx)
	if err == nil {
		err = listed
	}
	if ctx.Err() != nil {
		return watchSoon // the end
	}
	if err != nil {
		g.health.fault(PartKafka, faultBroker, g.health.because(err.Error()))
		return watchSoon
	}
	g.health.note("")
	g.health.clear(PartKafka, faultBroker)
	if len(missing) > 0 {
		g.health.fault(PartTopics, faultTopics, "not there yet: "+strings.Join(missing, ", ")+
			"; create them, or take them out of the route file")
		return watchSoon
	}
	g.health.clear(PartTopics, faultTopics)
	if g.list.needed() {
		return min(watchInterval, max(0, time.Until(g.list.due)))
	}
	return watchInterval
}

// lookAtIDs asks Kafka for the topics that are subscribed to, and returns which of those that routes name are not there.
func (g *Ingester) lookAtIDs(ctx context.Context) (missing []string, err error) {
	topics := g.wants()
	if len(topics) == 0 {
		return nil, nil
	}
	limited, cancel := context.WithTimeoutCause(ctx, watchLimit, errWatchLimit)
	defer cancel()
	ids, err := g.src.TopicIDs(limited, topics)
	if err != nil {
		return nil, err
	}
	g.noticeNewIDs(ids)
	g.windows.there = slices.Collect(maps.Keys(ids))
	for _, t := range g.topics {
		if _, ok := ids[t]; !ok {
			missing = append(missing, t)
		}
	}
	return missing, nil
}

// noticeNewIDs has partitions of topics that have another id than before started anew. Their offsets mean other records
// now, although they may look as if they went on.
func (g *Ingester) noticeNewIDs(ids map[string]message.TopicID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.parts {
		if id, ok := ids[p.Topic]; ok && p.phase != starting && id != p.topicID {
			g.restart(p)
		}
	}
}
