package ingest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

const (
	watchInterval = time.Minute
	watchSoon     = time.Second // while something is wrong
	watchLimit    = 5 * time.Second
)

var errWatchLimit = errors.New("no answer from Kafka within 5 s")

// watchLoop looks at the topics once a minute, and more often while something is wrong with them or with Kafka: it
// keeps both parts' readiness, and finds topics that were deleted and created again.
func (g *Ingester) watchLoop(ctx context.Context) {
	for {
		wait := watchInterval
		if !g.lookAtTopics(ctx) {
			wait = watchSoon
		}
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

// lookAtTopics says whether all is well.
func (g *Ingester) lookAtTopics(ctx context.Context) bool {
	limited, cancel := context.WithTimeoutCause(ctx, watchLimit, errWatchLimit)
	defer cancel()
	ids, err := g.src.TopicIDs(limited, g.topics)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		g.health.fault(PartKafka, faultBroker, g.health.because(err.Error()))
		return false
	}
	g.health.note("")
	g.health.clear(PartKafka, faultBroker)
	g.noticeNewIDs(ids)
	var missing []string
	for _, t := range g.topics {
		if _, ok := ids[t]; !ok {
			missing = append(missing, t)
		}
	}
	if len(missing) > 0 {
		g.health.fault(PartTopics, faultTopics, "not there yet: "+strings.Join(missing, ", ")+
			"; create them, or take them out of the route file")
		return false
	}
	g.health.clear(PartTopics, faultTopics)
	return true
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
