package route

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// typ is a type of values in the file.
type typ[V any] struct {
	// parse reads a value; it reports what is wrong with it.
	parse  func(p *parser, n *node, at string) (V, bool)
	schema func() schema
}

// withDefault tells editors the default.
func (t typ[V]) withDefault(v any) typ[V] {
	return typ[V]{t.parse, func() schema {
		s := t.schema()
		s["default"] = v
		return s
	}}
}

// referencePattern is what a scalar that is only ${…} looks like, for the JSON Schema.
const referencePattern = `^\$\{[^}]+\}$`

func orReference(s schema) schema {
	return schema{"anyOf": []any{s, schema{"type": "string", "pattern": referencePattern}}}
}

// text is a string; check says what is wrong with one, or nothing.
func text(pattern string, check func(string) string) typ[string] {
	return typ[string]{
		parse: func(p *parser, n *node, at string) (string, bool) {
			e, ok := p.text(n, at)
			if !ok {
				return "", false
			}
			if wrong := check(e.text); wrong != "" {
				p.fault(n, at, p.value(n)+" "+wrong)
				return "", false
			}
			return e.text, true
		},
		schema: func() schema {
			if pattern == "" {
				return schema{"type": "string"}
			}
			return schema{"type": "string", "pattern": pattern + `|\$\{`}
		},
	}
}

// text expands a scalar that must be text.
func (p *parser) text(n *node, at string) (expanded, bool) {
	switch n.kind {
	case kindText:
		return p.expand(n, at, verbatim)
	case kindNumber, kindBool:
		p.fault(n, at, "must be text; write it in quotes: '"+n.raw+"'")
	case kindMap:
		p.fault(n, at, "must be text, not a mapping; put text that begins with { in quotes or below a |")
	case kindNull, kindList:
		p.fault(n, at, "must be text"+found(n))
	}
	return expanded{}, false
}

// value names a scalar in a message, without showing what ${…} stands for.
func (p *parser) value(n *node) string {
	if strings.Contains(n.raw, "${") {
		return "the value of " + shown(n)
	}
	return shown(n)
}

// scalar returns the text of a number, duration or bool: a plain scalar, or one that is only ${…}.
func (p *parser) scalar(n *node, at, want string) (string, bool) {
	switch n.kind {
	case kindNumber, kindBool:
		return n.raw, true
	case kindText:
		if onlyReference.MatchString(n.raw) {
			e, ok := p.expand(n, at, verbatim)
			return strings.TrimSpace(e.text), ok
		}
		if n.style == stylePlain || want == aDuration || want == aSize {
			return n.raw, true
		}
		p.fault(n, at, "must be "+want+", without quotes"+found(n))
	case kindNull, kindList, kindMap:
		p.fault(n, at, "must be "+want+found(n))
	}
	return "", false
}

const (
	aDuration = "a duration, such as 500ms, 5s or 72h"
	aSize     = "a size, such as 64KiB"
	aNumber   = "a number"
	anInteger = "a whole number"
	aBoolean  = "true or false"
)

// number reads text by convert and holds it to its limits.
func number[V int | int64 | float64 | time.Duration](want string, low, high V, convert func(string) (V, error), describe func(V) string) typ[V] {
	return typ[V]{parse: func(p *parser, n *node, at string) (V, bool) {
		s, ok := p.scalar(n, at, want)
		if !ok {
			return 0, false
		}
		v, err := convert(s)
		switch {
		case err != nil:
			p.fault(n, at, p.value(n)+" is not "+want+hint(want, s))
		case v < low || v > high:
			p.fault(n, at, fmt.Sprintf("%s is out of range; it can be %s to %s", p.value(n), describe(low), describe(high)))
		default:
			return v, true
		}
		return 0, false
	}}
}

// hint says what is often meant by a duration that is none.
func hint(want, s string) string {
	if want != aDuration {
		return ""
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return "; add a unit: ms, s, m or h"
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n < 100_000 {
			return fmt.Sprintf("; write %d days as %dh", n, n*24)
		}
	}
	return ""
}

// boolean is true or false.
func boolean() typ[bool] {
	return typ[bool]{
		parse: func(p *parser, n *node, at string) (bool, bool) {
			s, ok := p.scalar(n, at, aBoolean)
			if !ok {
				return false, false
			}
			switch strings.ToLower(s) {
			case "true":
				return true, true
			case "false":
				return false, true
			}
			p.fault(n, at, p.value(n)+" is not "+aBoolean)
			return false, false
		},
		schema: func() schema { return orReference(schema{"type": "boolean"}) },
	}
}

// upTo is a whole number from 1.
func upTo(high int) typ[int] {
	t := number(anInteger, 1, high, strconv.Atoi, strconv.Itoa)
	t.schema = func() schema { return orReference(schema{"type": "integer", "minimum": 1, "maximum": high}) }
	return t
}

func float(low, high float64) typ[float64] {
	convert := func(s string) (float64, error) {
		v, err := strconv.ParseFloat(s, 64)
		if err == nil && math.IsNaN(v) {
			return 0, strconv.ErrSyntax
		}
		return v, err
	}
	t := number(aNumber, low, high, convert, func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) })
	t.schema = func() schema { return orReference(schema{"type": "number", "minimum": low, "maximum": high}) }
	return t
}

const durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`

func duration(low, high time.Duration) typ[time.Duration] {
	t := number(aDuration, low, high, time.ParseDuration, plain)
	t.schema = func() schema { return schema{"type": "string", "pattern": durationPattern + "|" + referencePattern} }
	return t
}

// plain writes a duration as people do: 72h, not 72h0m0s.
func plain(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

var (
	sizeText  = regexp.MustCompile(`^([0-9]+) ?(B|KB|MB|GB|KiB|MiB|GiB)?$`)
	sizeUnits = map[string]int64{
		"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
	}
)

func size(low, high int64) typ[int64] {
	convert := func(s string) (int64, error) {
		m := sizeText.FindStringSubmatch(s)
		if m == nil {
			return 0, strconv.ErrSyntax
		}
		n, err := strconv.ParseInt(m[1], 10, 64)
		if err == nil && n > math.MaxInt64/sizeUnits[m[2]] {
			n = math.MaxInt64 / sizeUnits[m[2]]
		}
		return n * sizeUnits[m[2]], err
	}
	t := number(aSize, low, high, convert, sizeOf)
	t.schema = func() schema {
		return schema{"anyOf": []any{
			schema{"type": "integer", "minimum": low, "maximum": high},
			schema{"type": "string", "pattern": sizeText.String() + "|" + referencePattern},
		}}
	}
	return t
}

func sizeOf(n int64) string {
	for _, unit := range []string{"GiB", "MiB", "KiB"} {
		if n >= sizeUnits[unit] && n%sizeUnits[unit] == 0 {
			return strconv.FormatInt(n/sizeUnits[unit], 10) + unit
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

// choice is one of some words. later are words whose feature is not in this version.
func choice[V ~string](words, later []V) typ[V] {
	names := make([]string, 0, len(words))
	for _, w := range words {
		names = append(names, string(w))
	}
	return typ[V]{
		parse: func(p *parser, n *node, at string) (V, bool) {
			e, ok := p.text(n, at)
			switch {
			case !ok:
			case slices.Contains(words, V(e.text)):
				return V(e.text), true
			case slices.Contains(later, V(e.text)):
				p.fault(n, at, p.value(n)+" is not available in this version; it can be "+strings.Join(names, ", "))
			case len(names) == 1:
				p.fault(n, at, p.value(n)+" is not known; it can only be "+names[0])
			default:
				message := p.value(n) + " is none of " + strings.Join(names, ", ")
				if near := nearest(strings.ToLower(e.text), lower(names)); near != "" && !e.any {
					message += "; did you mean " + names[slices.Index(lower(names), near)] + "?"
				}
				p.fault(n, at, message)
			}
			return "", false
		},
		schema: func() schema { return orReference(schema{"enum": names}) },
	}
}

func lower(words []string) []string {
	all := make([]string, 0, len(words))
	for _, w := range words {
		all = append(all, strings.ToLower(w))
	}
	return all
}

// maxVars bounds vars, which aliases could make endless.
const maxVars = 100_000

// anything is a value of any shape, as jq programs see it.
func anything() typ[any] {
	return typ[any]{
		parse: func(p *parser, n *node, at string) (any, bool) {
			before := len(p.faults)
			v := p.anything(n, at)
			return v, len(p.faults) == before
		},
		schema: func() schema { return schema{} },
	}
}

func (p *parser) anything(n *node, at string) any {
	if p.varsRead++; p.varsRead >= maxVars {
		if p.varsRead == maxVars {
			p.fault(n, at, "holds more than 100000 values; do aliases multiply them?")
		}
		return nil
	}
	switch n.kind {
	case kindText:
		e, _ := p.expand(n, at, verbatim)
		return e.text
	case kindNumber:
		return exactNumber(n)
	case kindBool:
		return strings.EqualFold(n.raw, "true")
	case kindList:
		list := make([]any, 0, len(n.items))
		for i, item := range n.items {
			list = append(list, p.anything(item, fmt.Sprintf("%s[%d]", at, i)))
		}
		return list
	case kindMap:
		m := make(map[string]any, len(n.entries))
		for _, e := range n.entries {
			m[e.key] = p.anything(e.node, join(at, e.key))
		}
		return m
	case kindNull:
	}
	return nil
}

// jsonNumber matches numbers that JSON can have as they stand in YAML.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

func exactNumber(n *node) any {
	switch {
	case jsonNumber.MatchString(n.raw):
		return json.Number(n.raw)
	default: // 0x10, 1_000, .5
		return json.Number(fmt.Sprint(n.number))
	}
}
