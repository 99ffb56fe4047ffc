package ingest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

// listing knows the topics that some route's topics_regex matches. librdkafka could subscribe to expressions by itself,
// but it knows another dialect, and drops a topic with the first answer that lacks it.
//
// Topics come at once and go slowly:
//
//	a broker has just started and does not know all topics yet; it is the one that is asked, and t is not in its list
//	if t were dropped: the group takes t's partitions from us, and 30 s later gives them back
//
// That would lose nothing, but t would rest meanwhile, and so would every partition under a strategy that takes all away
// at each rebalance. So a topic is dropped only when no list has had it for a whole interval, with no failure among them.
// A list without any topic is such a failure: no cluster that a group has ever read is empty.
type listing struct {
	patterns []*route.TopicPattern
	every    time.Duration
	began    time.Time
	due      time.Time            // when to list again
	found    map[string]time.Time // the topics that match; zero, or since when the lists lack it
}

func newListing(cfg Config) *listing {
	l := &listing{every: cfg.ListEvery, found: map[string]time.Time{}}
	for _, r := range cfg.Routes {
		if r.TopicsRegex != nil {
			l.patterns = append(l.patterns, r.TopicsRegex)
		}
	}
	return l
}

func (l *listing) needed() bool { return len(l.patterns) > 0 }

// news is what a list of topics says.
type news struct {
	found, gone []string // topics
	idle        []string // expressions that match none
}

// take compares the names of all topics with what was known.
func (l *listing) take(names []string, now time.Time) news {
	var n news
	matched, used := map[string]bool{}, map[string]bool{}
	for _, name := range names {
		for _, p := range l.patterns {
			if p.Match(name) {
				matched[name], used[p.String()] = true, true
			}
		}
	}
	for _, p := range l.patterns {
		if text := p.String(); !used[text] {
			used[text] = true
			n.idle = append(n.idle, text)
		}
	}
	for name := range matched {
		if _, known := l.found[name]; !known {
			n.found = append(n.found, name)
		}
		l.found[name] = time.Time{}
	}
	if len(names) == 0 {
		l.failed()
		return n
	}
	for name, since := range l.found {
		switch {
		case matched[name]:
		case since.IsZero():
			l.found[name] = now
		case now.Sub(since) >= l.every:
			delete(l.found, name)
			n.gone = append(n.gone, name)
		}
	}
	slices.Sort(n.found)
	slices.Sort(n.gone)
	return n
}

// failed says that what the lists before lacked may be there.
func (l *listing) failed() {
	for name := range l.found {
		l.found[name] = time.Time{}
	}
}

// listTopics lists the topics when it is time to, and has those that match read. While nothing has been subscribed to,
// nothing else tells whether Kafka answers, so that each look lists.
func (g *Ingester) listTopics(ctx context.Context) error {
	l := g.list
	if !l.needed() || len(g.wants()) > 0 && time.Now().Before(l.due) {
		return nil
	}
	limited, cancel := context.WithTimeoutCause(ctx, watchLimit, errWatchLimit)
	defer cancel()
	names, err := g.src.TopicNames(limited)
	if err != nil {
		l.failed()
		if len(g.wants()) == 0 {
			g.want(g.topics) // these need not wait for the list
		}
		return err
	}
	now := time.Now()
	if l.began.IsZero() {
		l.began = now
	}
	n := l.take(names, now)
	l.due = now.Add(l.every)
	if len(n.idle) == 0 {
		g.health.clear(PartTopics, faultMatch)
	} else {
		// Someone may be about to create them: soon at first, then ever more rarely.
		l.due = now.Add(min(l.every, max(watchSoon, now.Sub(l.began))))
		g.health.fault(PartTopics, faultMatch, "no topic matches "+strings.Join(n.idle, ", nor ")+
			" yet; create one, or correct topics_regex in the route file")
	}
	if len(n.found) > 0 {
		g.log.Info("topics that match topics_regex are read", "topics", n.found)
		for _, t := range n.found {
			for _, result := range message.IngestResults() {
				g.cfg.Metrics.IngestRecords(t, result, 0) // for dashboards: 0, and not "no data"
			}
		}
	}
	if len(n.gone) > 0 {
		g.log.Warn("topics that matched topics_regex are gone", "topics", n.gone)
	}
	g.want(slices.AppendSeq(slices.Clone(g.topics), maps.Keys(l.found)))
	return nil
}

// wants returns the topics to subscribe to.
func (g *Ingester) wants() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wanted
}

// want has the polling goroutine subscribe to these topics, which alone may do so: librdkafka calls it back meanwhile.
// When the last topic is gone, it stays: there is no subscription to nothing, and if the topic comes back it is read.
func (g *Ingester) want(topics []string) {
	if len(topics) == 0 {
		return
	}
	topics = slices.Clone(topics)
	slices.Sort(topics)
	topics = slices.Compact(topics)
	g.mu.Lock()
	g.wanted = topics
	g.mu.Unlock()
	g.attention.Store(true) // also without a change: a subscription that failed is tried again
}

// subscribe tells the source of the topics, if others are wanted than it knows. It belongs to the polling goroutine.
func (g *Ingester) subscribe() error {
	topics := g.wants()
	if slices.Equal(topics, g.told) {
		return nil
	}
	if err := g.src.Subscribe(topics); err != nil {
		return err
	}
	g.told = topics
	return nil
}
