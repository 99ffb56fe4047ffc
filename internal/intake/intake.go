// Package intake says what a route makes of a record when it is read: whether it takes it, and under which key. Nothing
// that a record holds can make it fail, since a record that is not stored would be lost or block its partition: where a
// program can't be run, the record is taken, or has its position for a key, and the outcome says why.
package intake

import (
	"context"
	"errors"
	"fmt"

	"github.com/ferry-forward/ferry/internal/forward/decode"
	"github.com/ferry-forward/ferry/internal/forward/jq"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

// Errors of an outcome, beside those of jq and of decoding.
var (
	ErrPanic = errors.New("evaluating the record panicked")
	ErrNoKey = errors.New("message_key yields neither a number nor a text that is not empty")
)

// Outcome is what a route makes of a record.
type Outcome struct {
	Result message.IngestResult // IngestStored, IngestFiltered or IngestTombstone
	Key    string               // message key, normalized
	// FilterErr is why the filter could not be evaluated; the record is taken then.
	FilterErr error
	// KeyErr is why the position is the key although the route has a message_key.
	KeyErr error
}

// Record is a record on its way into the database. Its value is decoded once for each format that its routes want, and
// only if a program looks at it. It is not for use by several goroutines at once.
type Record struct {
	record  *message.Record
	decoded []decoded
}

type decoded struct {
	format decode.Format
	value  any
	err    error
}

// New returns the record for its routes.
func New(r *message.Record) *Record { return &Record{record: r} }

// For returns what one route makes of the record.
func (r *Record) For(ctx context.Context, rt *route.Route) (o Outcome) {
	o = Outcome{Key: r.record.Position.Key(), Result: message.IngestStored}
	defer func() {
		if p := recover(); p != nil {
			o.Key, o.Result = r.record.Position.Key(), message.IngestStored
			o.KeyErr = fmt.Errorf("%w: %v", ErrPanic, p)
		}
	}()
	if r.record.Tombstone() && rt.Tombstones != route.TombstonesForward {
		o.Result = message.IngestTombstone
		return o
	}
	env := jq.NewEnv(r.record, jq.EnvOptions{Route: rt.Name, Vars: rt.Vars})
	var taken bool
	if taken, o.FilterErr = r.taken(ctx, rt, env); !taken {
		o.Result = message.IngestFiltered
		return o
	}
	if rt.MessageKey == nil {
		return o
	}
	key, err := r.messageKey(ctx, rt, env)
	if err != nil {
		o.KeyErr = err
		return o
	}
	o.Key = message.NormalizeKey(key)
	return o
}

// taken says whether the route's filter lets the record through. One that fails does.
func (r *Record) taken(ctx context.Context, rt *route.Route, env *jq.Env) (bool, error) {
	if rt.Filter == nil {
		return true, nil
	}
	input, err := r.input(rt.Filter, rt.Decode)
	if err != nil {
		return true, err
	}
	taken, err := rt.Filter.Truth(ctx, input, env)
	return taken || err != nil, err
}

func (r *Record) messageKey(ctx context.Context, rt *route.Route, env *jq.Env) (string, error) {
	input, err := r.input(rt.MessageKey, rt.Decode)
	if err != nil {
		return "", err
	}
	value, err := rt.MessageKey.One(ctx, input, env)
	if err != nil {
		return "", err
	}
	key, ok := jq.Text(value)
	if !ok || key == "" { // one key for all that have none would make them conflicts
		return "", ErrNoKey
	}
	return key, nil
}

// input is what the program gets to see. A tombstone is null.
func (r *Record) input(p *jq.Program, f decode.Format) (any, error) {
	if r.record.Tombstone() || !p.UsesInput() {
		return nil, nil
	}
	for _, d := range r.decoded {
		if d.format == f {
			return d.value, d.err
		}
	}
	value, err := f.Value(r.record.Value)
	r.decoded = append(r.decoded, decoded{f, value, err})
	return value, err
}
