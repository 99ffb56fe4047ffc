package ingest

import (
	"context"
	"log/slog"
	"sync"

	"github.com/ferry-forward/ferry/internal/intake"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

// evaluator finds out what the routes make of a record: filter and message key. Nothing that a record holds can stop
// it, since a record that is not stored would be lost or block its partition.
type evaluator struct {
	routes  []*route.Route
	readers sync.Map // by topic, []*route.Route: the writers look up and fill in side by side
	metrics interface {
		KeyFallback(route string)
		FilterError(route string)
	}
	log *slog.Logger
}

func newEvaluator(cfg Config) *evaluator {
	return &evaluator{routes: cfg.Routes, metrics: cfg.Metrics, log: cfg.Logger}
}

// readersOf returns the routes that read a topic, each once, whether they name it, match it or both.
func (e *evaluator) readersOf(topic string) []*route.Route {
	if known, ok := e.readers.Load(topic); ok {
		return known.([]*route.Route)
	}
	var routes []*route.Route
	for _, r := range e.routes {
		if r.Reads(topic) {
			routes = append(routes, r)
		}
	}
	e.readers.Store(topic, routes)
	return routes
}

// incoming returns the record once for each route of its topic.
func (e *evaluator) incoming(ctx context.Context, r *message.Record) []message.Incoming {
	routes := e.readersOf(r.Topic)
	record := intake.New(r)
	incoming := make([]message.Incoming, len(routes))
	for i, rt := range routes {
		o := record.For(ctx, rt)
		e.tell(rt, r, o)
		incoming[i] = message.Incoming{Route: rt.Name, Key: o.Key, Record: r, Result: o.Result}
	}
	return incoming
}

// tell counts and logs what could not be evaluated. Should that panic, the record is stored all the same.
func (e *evaluator) tell(rt *route.Route, r *message.Record, o intake.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("telling of a record panicked", "route", rt.Name, "topic", r.Topic, "partition", r.Partition, "offset", r.Offset,
				"panic", p)
		}
	}()
	if o.FilterErr != nil {
		e.metrics.FilterError(rt.Name)
		e.log.Warn("the filter fails on a record, which is stored", "route", rt.Name, "topic", r.Topic,
			"partition", r.Partition, "offset", r.Offset, "error", o.FilterErr)
	}
	if o.KeyErr != nil {
		e.metrics.KeyFallback(rt.Name)
		e.log.Warn("no message key in a record; its position is the key, so that it may be stored again after a reset of the group",
			"route", rt.Name, "topic", r.Topic, "partition", r.Partition, "offset", r.Offset, "error", o.KeyErr)
	}
}
