package ingest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

const (
	// windowAgain is when Kafka is asked again how long topics keep their records, after it did not answer.
	windowAgain = time.Minute
	// windowTold bounds the topics that one warning names.
	windowTold = 20
)

// windows compares, once for each topic, how long it keeps its records with how long messages are kept. A record whose
// message was purged is a new one when it is read again, as after the group's offsets were set back: it is sent again. It
// belongs to the watching goroutine, and comes after all that readiness hangs on: without an answer, nothing is amiss.
type windows struct {
	there []string        // topics that exist, by the last look
	asked map[string]bool // of these, those that were compared
	due   time.Time       // not before this
}

// compareWindows warns of topics that keep records for longer than their messages are kept.
func (g *Ingester) compareWindows(ctx context.Context) {
	w := &g.windows
	var topics []string
	for _, t := range w.there {
		if !w.asked[t] {
			topics = append(topics, t)
		}
	}
	if len(topics) == 0 || time.Now().Before(w.due) {
		return
	}
	limited, cancel := context.WithTimeoutCause(ctx, watchLimit, errWatchLimit)
	defer cancel()
	kept, err := g.src.Kept(limited, topics)
	if err != nil {
		w.due = time.Now().Add(windowAgain)
		g.log.Debug("not known how long the topics keep their records", "error", err)
		return
	}
	slices.Sort(topics)
	var longer []string
	for _, t := range topics {
		w.asked[t] = true
		if d, ok := kept[t]; ok {
			if r := forgetful(g.cfg.Routes, t, d); r != nil {
				longer = append(longer, fmt.Sprintf("%s %s (route %s: %s)", t, duration(d), r.Name, duration(window(r))))
			}
		}
	}
	if len(longer) == 0 {
		return
	}
	if more := len(longer) - windowTold; more > 0 {
		longer = append(longer[:windowTold], fmt.Sprintf("and %d more", more))
	}
	g.log.Warn("topics keep their records for longer than their messages are kept: when they are read again that far back, "+
		"what was purged is sent again; raise retention.delivered and retention.failed of the routes to the topics' retention.ms, "+
		"or lower that", "topics", longer)
}

// forgetful returns the route of the topic that forgets its messages first, if it does before Kafka removes the records.
func forgetful(routes []*route.Route, topic string, kept time.Duration) *route.Route {
	var first *route.Route
	for _, r := range routes {
		if r.Reads(topic) && window(r) < kept && (first == nil || window(r) < window(first)) {
			first = r
		}
	}
	return first
}

// window is how long a route surely knows the keys of its messages.
func window(r *route.Route) time.Duration { return min(r.Retention.Delivered, r.Retention.Failed) }

// duration is for people: 168h instead of 168h0m0s.
func duration(d time.Duration) string {
	if d == message.ForEver {
		return "for ever"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
