package jq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/itchyny/gojq"
)

const (
	timeLimit = time.Second
	maxValues = 10_000
)

// Errors of a run, beside those that the program itself raises.
var (
	ErrTimeLimit     = errors.New("jq: the program took longer than its time limit of 1s")
	ErrNoValue       = errors.New("jq: the program yields no value, and exactly one is needed")
	ErrManyValues    = errors.New("jq: the program yields more than one value, and exactly one is needed")
	ErrTooManyValues = errors.New("jq: the program yields more than 10000 values")
	errPanic         = errors.New("jq: the interpreter failed")
	errHalt          = errors.New("jq: the program halted")
)

// Program is a compiled jq program. It may run in several goroutines at once.
type Program struct {
	src   string
	query *gojq.Query
	code  *gojq.Code
	vars  []variable // those that it uses, in the order of code's variables
	limit time.Duration
}

// Compile compiles a program; its error is a *CompileError.
func Compile(src string) (*Program, error) {
	query, err := gojq.Parse(src)
	if err != nil {
		return nil, parseError(src, err)
	}
	words := wordsOf(query)
	if err := words.refused(src); err != nil {
		return nil, err
	}
	p := &Program{src: src, query: query, limit: timeLimit}
	var names []string
	for v := range variableCount {
		if words.calls["$"+v.String()] {
			p.vars = append(p.vars, v)
			names = append(names, "$"+v.String())
		}
	}
	words.guardNumbers()
	if p.code, err = gojq.Compile(query, gojq.WithVariables(names), gojq.WithFunction(digitsGuard, 0, 0, refuseDigits)); err != nil {
		return nil, words.compileError(src, err)
	}
	return p, nil
}

// Source returns the program's text.
func (p *Program) Source() string { return p.src }

// Uses says whether the program names the variable, which is written without its dollar sign.
func (p *Program) Uses(name string) bool {
	for _, v := range p.vars {
		if v.String() == name {
			return true
		}
	}
	return false
}

// Values returns all values of the program, at most 10,000 of them.
func (p *Program) Values(ctx context.Context, input any, env *Env) ([]any, error) {
	return p.run(ctx, input, env, func(n int) error {
		if n > maxValues {
			return ErrTooManyValues
		}
		return nil
	})
}

// One returns the program's only value. The error is ErrNoValue or ErrManyValues when there is not exactly one.
func (p *Program) One(ctx context.Context, input any, env *Env) (any, error) {
	values, err := p.run(ctx, input, env, func(n int) error {
		if n > 1 {
			return ErrManyValues
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(values) == 0 {
		return nil, ErrNoValue
	}
	return values[0], nil
}

// Truth returns whether the first value of the program is neither false nor null; without a value it is false.
func (p *Program) Truth(ctx context.Context, input any, env *Env) (bool, error) {
	values, err := p.run(ctx, input, env, func(int) error { return errEnough })
	if errors.Is(err, errEnough) {
		err = nil
	}
	if err != nil || len(values) == 0 {
		return false, err
	}
	return values[0] != nil && values[0] != false, nil
}

var errEnough = errors.New("enough")

// run collects values until check, which is told their number, objects.
func (p *Program) run(ctx context.Context, input any, env *Env, check func(n int) error) (values []any, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit, ErrTimeLimit)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			values, err = nil, env.mask(p, fmt.Errorf("%w: %v", errPanic, r))
		}
	}()
	iter := p.code.RunWithContext(ctx, input, env.values(p.vars)...)
	for {
		v, ok := iter.Next()
		if !ok {
			return values, nil
		}
		if err, isErr := v.(error); isErr {
			return nil, env.mask(p, runError(ctx, err))
		}
		values = append(values, v)
		if err := check(len(values)); err != nil {
			return values, err
		}
	}
}

func runError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var halt *gojq.HaltError
	if errors.As(err, &halt) && halt.Value() == nil {
		return errHalt
	}
	_ = err.Error() // panics here, where it is recovered, if the error shows a value of an invalid type
	return fmt.Errorf("jq: %w", err)
}

// Text returns the text of a string or a number, the latter as it was written; anything else has none.
func Text(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case float64:
		if math.IsNaN(v) {
			return "", false
		}
	case int, *big.Int:
	default:
		return "", false
	}
	b, err := gojq.Marshal(v)
	return string(b), err == nil
}
