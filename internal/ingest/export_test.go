package ingest

import (
	"context"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

// Paused counts the partitions that the source was told to pause.
func Paused(g *Ingester) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.parts {
		if p.phase == running && p.paused != flowing {
			n++
		}
	}
	return n
}

// Owned counts the partitions of the process that are read.
func Owned(g *Ingester) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.parts {
		if p.phase == running {
			n++
		}
	}
	return n
}

// Buffered is how many bytes of records are in memory.
func Buffered(g *Ingester) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.writers {
		n += w.bytes
	}
	return n
}

// Evaluate says what the routes make of a record.
func Evaluate(cfg Config, r *message.Record) []message.Incoming {
	return newEvaluator(cfg.withDefaults()).incoming(context.Background(), r)
}

// Subscribed are the topics that are to be read.
func Subscribed(g *Ingester) []string { return g.wants() }

// Lists are the topics that match, list by list.
type Lists struct{ l *listing }

// Take takes the next list.
func (l *Lists) Take(cfg Config, names []string, now time.Time) (found, gone, idle []string) {
	if l.l == nil {
		l.l = newListing(cfg)
	}
	n := l.l.take(names, now)
	return n.found, n.gone, n.idle
}

// Failed says that a list could not be had.
func (l *Lists) Failed() { l.l.failed() }

// Recheck has the rows compared now, and not in ten seconds.
func Recheck(g *Ingester) { kick(g.recheck) }

// LookAtGroup looks now at who else uses the group.
func LookAtGroup(g *Ingester) { g.lookAtGroup(context.Background()) }
