package jq

import (
	"errors"

	"github.com/itchyny/gojq"
)

// maxDigits is how many digits in a row a text may have that becomes a number. Reading millions of them takes a minute,
// and the time limit can't interrupt it. Package decode has the same limit for numbers of a record.
const maxDigits = 10_000

// digitsGuard is the function that is put before those that read numbers from text.
const digitsGuard = "_ferry_digits"

var errDigits = errors.New("a number of more than 10000 digits")

func refuseDigits(v any, _ []any) any {
	s, _ := v.(string)
	run := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			run = 0
			continue
		}
		if run++; run > maxDigits {
			return errDigits
		}
	}
	return v
}

// guardNumbers makes each call of tonumber and fromjson (digitsGuard | tonumber).
func (w *words) guardNumbers() {
	for _, t := range w.terms {
		name := t.Func.Name
		if name != "tonumber" && name != "fromjson" || len(t.Func.Args) > 0 || w.defined[name] {
			continue
		}
		call := func(name string) *gojq.Query {
			return &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeFunc, Func: &gojq.Func{Name: name}}}
		}
		t.Type, t.Func = gojq.TermTypeQuery, nil
		t.Query = &gojq.Query{Left: call(digitsGuard), Op: gojq.OpPipe, Right: call(name)}
	}
}
