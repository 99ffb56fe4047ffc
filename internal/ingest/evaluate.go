package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/ferry-forward/ferry/internal/forward/decode"
	"github.com/ferry-forward/ferry/internal/forward/jq"
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
	values := &values{record: r}
	incoming := make([]message.Incoming, len(routes))
	for i, rt := range routes {
		incoming[i] = e.forRoute(ctx, rt, values)
	}
	return incoming
}

var (
	errPanic = errors.New("evaluating the record panicked")
	errNoKey = errors.New("message_key yields neither a number nor a text that is not empty")
)

func (e *evaluator) forRoute(ctx context.Context, rt *route.Route, v *values) (in message.Incoming) {
	in = message.Incoming{Route: rt.Name, Key: v.record.Position.Key(), Record: v.record, Result: message.IngestStored}
	defer func() {
		if p := recover(); p != nil {
			in.Key, in.Result = v.record.Position.Key(), message.IngestStored
			e.fallBack(rt, v.record, fmt.Errorf("%w: %v", errPanic, p))
		}
	}()
	if v.record.Tombstone() && rt.Tombstones != route.TombstonesForward {
		in.Result = message.IngestTombstone
		return in
	}
	env := jq.NewEnv(v.record, jq.EnvOptions{Route: rt.Name, Vars: rt.Vars})
	if !e.takes(ctx, rt, v, env) {
		in.Result = message.IngestFiltered
		return in
	}
	if rt.MessageKey == nil {
		return in
	}
	key, err := messageKey(ctx, rt, v, env)
	if err != nil {
		e.fallBack(rt, v.record, err)
		return in
	}
	in.Key = message.NormalizeKey(key)
	return in
}

// takes says whether the route's filter lets the record through. One that fails does.
func (e *evaluator) takes(ctx context.Context, rt *route.Route, v *values, env *jq.Env) bool {
	if rt.Filter == nil {
		return true
	}
	input, err := v.input(rt.Filter, rt.Decode)
	if err == nil {
		var taken bool
		if taken, err = rt.Filter.Truth(ctx, input, env); err == nil {
			return taken
		}
	}
	e.metrics.FilterError(rt.Name)
	e.log.Warn("the filter fails on a record, which is stored", "route", rt.Name, "topic", v.record.Topic,
		"partition", v.record.Partition, "offset", v.record.Offset, "error", err)
	return true
}

func messageKey(ctx context.Context, rt *route.Route, v *values, env *jq.Env) (string, error) {
	input, err := v.input(rt.MessageKey, rt.Decode)
	if err != nil {
		return "", err
	}
	value, err := rt.MessageKey.One(ctx, input, env)
	if err != nil {
		return "", err
	}
	key, ok := jq.Text(value)
	if !ok || key == "" { // one key for all that have none would make them conflicts
		return "", errNoKey
	}
	return key, nil
}

// fallBack tells that the position is the key.
func (e *evaluator) fallBack(rt *route.Route, r *message.Record, err error) {
	e.metrics.KeyFallback(rt.Name)
	e.log.Warn("no message key in a record; its position is the key, so that it may be stored again after a reset of the group",
		"route", rt.Name, "topic", r.Topic, "partition", r.Partition, "offset", r.Offset, "error", err)
}

// values decodes the record's value, once for each format that its routes want, and only if a program looks at it.
type values struct {
	record  *message.Record
	decoded []decoded
}

type decoded struct {
	format decode.Format
	value  any
	err    error
}

// input is what the program gets to see. A tombstone is null.
func (v *values) input(p *jq.Program, f decode.Format) (any, error) {
	if v.record.Tombstone() || !p.UsesInput() {
		return nil, nil
	}
	for _, d := range v.decoded {
		if d.format == f {
			return d.value, d.err
		}
	}
	value, err := f.Value(v.record.Value)
	v.decoded = append(v.decoded, decoded{f, value, err})
	return value, err
}
