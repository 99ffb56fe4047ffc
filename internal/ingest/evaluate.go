package ingest

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/ferry-forward/ferry/internal/forward/decode"
	"github.com/ferry-forward/ferry/internal/forward/jq"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

// evaluator finds out what each route makes of a record: its key, and whether it is taken.
type evaluator struct {
	byTopic map[string][]*route.Route
	metrics Metrics
	log     *slog.Logger
}

func newEvaluator(cfg Config) *evaluator {
	e := &evaluator{byTopic: map[string][]*route.Route{}, metrics: cfg.Metrics, log: cfg.Logger}
	for _, r := range cfg.Routes {
		for _, t := range r.Topics {
			e.byTopic[t] = append(e.byTopic[t], r)
		}
	}
	return e
}

// evaluate returns for each item what its routes make of it.
func (g *Ingester) evaluate(ctx context.Context, items []item) [][]message.Incoming {
	out := make([][]message.Incoming, len(items))
	for i, it := range items {
		values := map[decode.Format]decoded{}
		for _, r := range g.eval.byTopic[it.record.Topic] {
			out[i] = append(out[i], g.eval.one(context.WithoutCancel(ctx), r, it.record, values))
		}
	}
	return out
}

type decoded struct {
	value any
	err   error
}

// one never fails: what can't be evaluated is stored under its position.
func (e *evaluator) one(ctx context.Context, r *route.Route, rec *message.Record, values map[decode.Format]decoded) message.Incoming {
	in := message.Incoming{Route: r.Name, Record: rec, Key: message.NormalizeKey(rec.Position.Key()), Result: message.IngestStored}
	if rec.Tombstone() && r.Tombstones == route.TombstonesSkip {
		in.Result = message.IngestTombstone
		return in
	}
	env := jq.NewEnv(rec, jq.EnvOptions{Route: r.Name, Vars: r.Vars})
	value := func(p *jq.Program) (any, error) {
		if !p.UsesInput() {
			return nil, nil
		}
		v, ok := values[r.Decode]
		if !ok {
			v.value, v.err = r.Decode.Value(rec.Value)
			values[r.Decode] = v
		}
		return v.value, v.err
	}
	if r.Filter != nil {
		v, err := value(r.Filter)
		take := true
		if err == nil {
			take, err = e.truth(ctx, r.Filter, v, env)
		}
		if err != nil {
			take = true
			e.metrics.FilterError(r.Name)
			e.log.Warn("a filter did not evaluate; its record is stored", "route", r.Name, "topic", rec.Topic,
				"partition", rec.Partition, "offset", rec.Offset, "error", err)
		}
		if !take {
			in.Result = message.IngestFiltered
			return in
		}
	}
	if r.MessageKey == nil {
		return in
	}
	v, err := value(r.MessageKey)
	if err == nil {
		var key string
		if key, err = e.key(ctx, r.MessageKey, v, env); err == nil {
			in.Key = message.NormalizeKey(key)
			return in
		}
	}
	e.metrics.KeyFallback(r.Name)
	e.log.Warn("no message key; the record's position is its key", "route", r.Name, "topic", rec.Topic,
		"partition", rec.Partition, "offset", rec.Offset, "error", err)
	return in
}

func (e *evaluator) truth(ctx context.Context, p *jq.Program, v any, env *jq.Env) (ok bool, err error) {
	defer contain(&err)
	return p.Truth(ctx, v, env)
}

func (e *evaluator) key(ctx context.Context, p *jq.Program, v any, env *jq.Env) (key string, err error) {
	defer contain(&err)
	k, err := p.One(ctx, v, env)
	if err != nil {
		return "", err
	}
	text, ok := jq.Text(k)
	if !ok {
		return "", fmt.Errorf("message_key is neither a string nor a number but %T", k) //nolint:err113 // for the log
	}
	return text, nil
}

// contain makes an error of a panic: one record must not take the process down, for it would come again.
func contain(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v", p) //nolint:err113 // for the log
	}
}
