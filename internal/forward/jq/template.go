package jq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/itchyny/gojq"
)

// Escape says how the values that a template inserts are encoded.
type Escape int

// The ways to encode inserted values.
const (
	// EscapeURL percent-encodes every byte but RFC 3986's unreserved ones.
	EscapeURL Escape = iota + 1
	// EscapeHeader percent-encodes control bytes but tab, so that the result can stand in an HTTP header.
	EscapeHeader
)

// Template is fixed text with jq programs in it: /lots/\(.parkCode)/events. The fixed text has the escapes of a jq
// string (\n, \\, \u00e9), except that a quote needs none.
type Template struct {
	src    string
	parts  []part
	escape Escape
}

type part struct {
	fixed   string
	program *Program // nil: fixed text
	at      int      // offset of its \( in the template's text
}

// CompileTemplate compiles a template; its error is a *CompileError.
func CompileTemplate(src string, escape Escape) (*Template, error) {
	t := &Template{src: src, escape: escape}
	for at := 0; at < len(src); {
		end := fixedEnd(src, at)
		if end > at {
			fixed, err := parseFixed(src, at, end)
			if err != nil {
				return nil, err
			}
			t.parts = append(t.parts, part{fixed: fixed})
		}
		if end == len(src) {
			break
		}
		program, next, err := compilePart(src, end)
		if err != nil {
			return nil, err
		}
		t.parts = append(t.parts, part{program: program, at: end})
		at = next
	}
	return t, nil
}

// fixedEnd returns the offset of the next \( from at, or the end.
func fixedEnd(src string, at int) int {
	for i := at; i < len(src); i++ {
		if src[i] != '\\' {
			continue
		}
		if strings.HasPrefix(src[i:], `\(`) {
			return i
		}
		i++
	}
	return len(src)
}

// parseFixed lets gojq read the escapes of the fixed text src[at:end].
func parseFixed(src string, at, end int) (string, error) {
	var literal strings.Builder
	literal.WriteByte('"')
	var origin []int // where in src each byte of the literal comes from
	origin = append(origin, at)
	escaped := false
	for i := at; i < end; i++ {
		if src[i] == '"' && !escaped {
			literal.WriteByte('\\')
			origin = append(origin, i)
		}
		escaped = src[i] == '\\' && !escaped
		literal.WriteByte(src[i])
		origin = append(origin, i)
	}
	if escaped {
		return "", compileErrorAt(src, end-1, `a single backslash at the end; write \\ for one`)
	}
	literal.WriteByte('"')
	q, err := gojq.Parse(literal.String())
	var parse *gojq.ParseError
	if errors.As(err, &parse) {
		offset := parse.Offset - len(parse.Token)
		return "", compileErrorAt(src, origin[min(max(offset, 0), len(origin)-1)], parse.Error())
	}
	if err != nil || q.Term == nil || q.Term.Str == nil {
		return "", compileErrorAt(src, at, "invalid text")
	}
	return q.Term.Str.Str, nil
}

// compilePart compiles the program of the \(…) at offset at and returns the offset behind it.
func compilePart(src string, at int) (*Program, int, error) {
	start := at + len(`\(`)
	s := scanner{src: src, pos: start}
	if !s.code(func(string, int) {}) {
		return nil, 0, compileErrorAt(src, at, `\( without its closing parenthesis`)
	}
	if strings.TrimSpace(src[start:s.pos]) == "" {
		return nil, 0, compileErrorAt(src, at, `\() is empty; write a jq program into it, such as \(.id)`)
	}
	p, err := Compile(src[start:s.pos])
	var fault *CompileError
	if errors.As(err, &fault) {
		line, column := position(src, start)
		if fault.Line == 1 {
			fault.Column += column - 1
		}
		fault.Line += line - 1
	}
	return p, s.pos + 1, err
}

// Source returns the template's text.
func (t *Template) Source() string { return t.src }

// Prefix returns the fixed text at the beginning, and whether it is all there is.
func (t *Template) Prefix() (text string, whole bool) {
	if len(t.parts) == 0 {
		return "", true
	}
	return t.parts[0].fixed, len(t.parts) == 1 && t.parts[0].program == nil
}

// Sample returns the text with a stand-in for what each program yields.
func (t *Template) Sample(standIn string) string {
	var out strings.Builder
	for _, p := range t.parts {
		if p.program != nil {
			out.WriteString(standIn)
			continue
		}
		out.WriteString(p.fixed)
	}
	return out.String()
}

// UsesInput says whether a part of the template may look at the record's value. It errs on the side of true.
func (t *Template) UsesInput() bool {
	return t.any((*Program).UsesInput)
}

// Uses says whether a part of the template names the variable, which is written without its dollar sign.
func (t *Template) Uses(name string) bool {
	return t.any(func(p *Program) bool { return p.Uses(name) })
}

func (t *Template) any(is func(*Program) bool) bool {
	for _, p := range t.parts {
		if p.program != nil && is(p.program) {
			return true
		}
	}
	return false
}

var (
	errNotScalar  = errors.New("is neither text, number nor boolean, so it can't be inserted")
	errDotSegment = errors.New(`an inserted value makes "." or ".." a segment of the path, which could lead elsewhere`)
)

// ExpandError is why a part of a template yields nothing that can be inserted.
type ExpandError struct {
	Offset int // of the part in the template's text
	Err    error
}

// Error says which part, and why.
func (e *ExpandError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ExpandError) Unwrap() error { return e.Err }

// Expand returns the text with the values of its programs inserted. Each program must yield exactly one string, number
// or boolean. In a URL no inserted value can make a path segment "." or "..".
func (t *Template) Expand(ctx context.Context, input any, env *Env) (string, error) {
	var out strings.Builder
	for _, p := range t.parts {
		if p.program == nil {
			out.WriteString(p.fixed)
			continue
		}
		v, err := p.program.One(ctx, input, env)
		if err != nil {
			return "", &ExpandError{p.at, fmt.Errorf(`\(%s): %w`, p.program.src, err)}
		}
		value, ok := Text(v)
		if b, isBool := v.(bool); isBool {
			value, ok = strconv.FormatBool(b), true
		}
		if !ok {
			return "", &ExpandError{p.at, fmt.Errorf(`\(%s): %s %w`, p.program.src, kind(v), errNotScalar)}
		}
		t.escape.write(&out, value)
	}
	s := out.String()
	if t.escape == EscapeURL && t.any(func(*Program) bool { return true }) && dotSegment(s) {
		return "", errDotSegment
	}
	return s, nil
}

func kind(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	}
	return "not a number"
}

func (e Escape) write(out *strings.Builder, s string) {
	const hex = "0123456789ABCDEF"
	for i := range len(s) {
		c := s[i]
		keep := c >= ' ' && c != 0x7f || c == '\t'
		if e == EscapeURL {
			keep = wordPart(c) || c == '-' || c == '.' || c == '~'
		}
		if keep {
			out.WriteByte(c)
			continue
		}
		out.WriteByte('%')
		out.WriteByte(hex[c>>4])
		out.WriteByte(hex[c&15])
	}
}

func dotSegment(url string) bool {
	if i := strings.IndexAny(url, "?#"); i >= 0 {
		url = url[:i]
	}
	for segment := range strings.SplitSeq(url, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}
