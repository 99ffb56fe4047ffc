package jq

import (
	"slices"

	"github.com/itchyny/gojq"
)

// Reads says whether the program may look at the field of its input. It errs on the side of true: false is certain.
func (p *Program) Reads(field string) bool {
	return reads(p.query, func(name string) bool { return name == field })
}

// UsesInput says whether the program may look at its input at all. It errs on the side of true.
func (p *Program) UsesInput() bool { return reads(p.query, func(string) bool { return true }) }

func reads(q *gojq.Query, field func(string) bool) bool {
	r := reader{field}.query(q)
	return r.reads || r.whole
}

// reader follows the program's whole input through the program, until only fields of it are left. Wherever `.` is not
// the whole input any more, nothing needs to be followed: variables and functions of the program's own are never given
// the whole (that counts as reading it).
type reader struct{ field func(string) bool }

// flow is what an expression does with the whole input.
type flow struct {
	reads bool // looks at the field
	whole bool // yields the whole input, or may
}

func (f flow) and(g flow) flow { return flow{f.reads || g.reads, f.whole || g.whole} }

// used is the flow of an expression whose value is looked at there and then.
func (f flow) used() flow { return flow{reads: f.reads || f.whole} }

func (r reader) query(q *gojq.Query) flow {
	if q == nil {
		return flow{}
	}
	if q.Term != nil {
		return r.term(q.Term)
	}
	left := r.query(q.Left)
	switch q.Op {
	case gojq.OpPipe:
		if len(q.Patterns) > 0 { // left as $x | right
			return left.used().and(r.query(q.Right))
		}
		if !left.whole {
			return left
		}
		return flow{reads: left.reads}.and(r.query(q.Right))
	case gojq.OpComma, gojq.OpAlt:
		return left.and(r.query(q.Right))
	case gojq.OpAdd, gojq.OpSub, gojq.OpMul, gojq.OpDiv, gojq.OpMod, gojq.OpEq, gojq.OpNe, gojq.OpGt, gojq.OpLt,
		gojq.OpGe, gojq.OpLe, gojq.OpAnd, gojq.OpOr:
		return left.used().and(r.query(q.Right).used())
	case gojq.OpAssign, gojq.OpModify, gojq.OpUpdateAdd, gojq.OpUpdateSub, gojq.OpUpdateMul, gojq.OpUpdateDiv,
		gojq.OpUpdateMod, gojq.OpUpdateAlt:
	}
	return flow{reads: true}
}

func (r reader) term(t *gojq.Term) flow {
	head := r.head(t)
	for _, s := range t.SuffixList {
		switch {
		case s.Index != nil:
			head = r.index(s.Index, head)
		case s.Iter && head.whole:
			return flow{reads: true}
		case s.Optional, s.Iter:
		default:
			return flow{reads: true}
		}
	}
	return head
}

// index is the flow of from.index.
func (r reader) index(x *gojq.Index, from flow) flow {
	f := flow{reads: from.reads}
	if name, fixed := indexName(x); fixed {
		f.reads = f.reads || from.whole && r.field(name)
		return f
	}
	f = f.and(r.query(x.Start).used()).and(r.query(x.End).used()).and(r.optionalString(x.Str).used())
	f.reads = f.reads || from.whole
	return f
}

func indexName(x *gojq.Index) (string, bool) {
	switch {
	case x.Name != "":
		return x.Name, true
	case x.Str != nil:
		return x.Str.Str, x.Str.Queries == nil
	case x.IsSlice || x.Start == nil || x.Start.Term == nil:
		return "", false
	}
	t := x.Start.Term
	if t.Type != gojq.TermTypeString || len(t.SuffixList) > 0 || t.Str.Queries != nil {
		return "", false
	}
	return t.Str.Str, true
}

func (r reader) optionalString(s *gojq.String) flow {
	if s == nil {
		return flow{}
	}
	var f flow
	for _, q := range s.Queries {
		f = f.and(r.query(q).used())
	}
	return f
}

func (r reader) head(t *gojq.Term) flow {
	switch t.Type {
	case gojq.TermTypeIdentity:
		return flow{whole: true}
	case gojq.TermTypeIndex:
		return r.index(t.Index, flow{whole: true})
	case gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse, gojq.TermTypeNumber, gojq.TermTypeBreak:
		return flow{}
	case gojq.TermTypeFunc:
		return r.call(t.Func)
	case gojq.TermTypeObject:
		return r.object(t.Object)
	case gojq.TermTypeArray:
		return r.query(t.Array.Query).used()
	case gojq.TermTypeUnary:
		return r.term(t.Unary.Term).used()
	case gojq.TermTypeFormat:
		if t.Str == nil {
			return flow{reads: true}
		}
		return r.optionalString(t.Str)
	case gojq.TermTypeString:
		return r.optionalString(t.Str)
	case gojq.TermTypeIf:
		return r.conditional(t.If)
	case gojq.TermTypeTry:
		return r.query(t.Try.Body) // what catch sees is the error
	case gojq.TermTypeLabel:
		return r.query(t.Label.Body)
	case gojq.TermTypeQuery:
		return r.query(t.Query)
	case gojq.TermTypeRecurse, gojq.TermTypeReduce, gojq.TermTypeForeach:
	}
	return flow{reads: true}
}

func (r reader) conditional(c *gojq.If) flow {
	f := r.query(c.Cond).used().and(r.query(c.Then))
	for _, e := range c.Elif {
		f = f.and(r.query(e.Cond).used()).and(r.query(e.Then))
	}
	if c.Else == nil {
		return f.and(flow{whole: true})
	}
	return f.and(r.query(c.Else))
}

func (r reader) object(o *gojq.Object) flow {
	var f flow
	for _, kv := range o.KeyVals {
		f = f.and(r.query(kv.KeyQuery).used()).and(r.optionalString(kv.KeyString)).and(r.query(kv.Val).used())
		if kv.Val != nil || kv.KeyQuery != nil {
			continue
		}
		switch { // {name}, {"name"} and {$name}
		case kv.Key != "" && kv.Key[0] != '$':
			f.reads = f.reads || r.field(kv.Key)
		case kv.KeyString != nil:
			f.reads = f.reads || kv.KeyString.Queries != nil || r.field(kv.KeyString.Str)
		}
	}
	return f
}

// blind are the functions that do not look at their input.
var blind = []string{"empty", "now", "nan", "infinite", "null", "true", "false"}

func (r reader) call(f *gojq.Func) flow {
	switch {
	case f.Name[0] == '$', len(f.Args) == 0 && slices.Contains(blind, f.Name):
		return flow{}
	case f.Name == "error" && len(f.Args) == 1:
		return r.query(f.Args[0]).used()
	case f.Name == "select" && len(f.Args) == 1:
		return flow{whole: true}.and(r.query(f.Args[0]).used())
	}
	return flow{reads: true}
}
