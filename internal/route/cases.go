package route

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ferry-forward/ferry/internal/forward/jq"
	"github.com/ferry-forward/ferry/internal/message"
)

// Cases is a checked file of test cases for a route file.
type Cases struct {
	Path  string
	Env   map[string]string // stands in for NAME, or file:/path, of the route file
	Cases []Case
}

// Case is one of them: what a route makes of a record, or of answers, or of both.
type Case struct {
	Name, Route  string
	Line, Column int // where it begins
	routeAt      *node

	Input   *Input // nil: only answers are judged
	Expect  Expect
	Replies []Reply
}

// Input is a record.
type Input struct {
	Topic     string // empty: the route's first one
	Partition int
	Offset    int
	Key       *string // nil: none
	Headers   []HeaderText
	Timestamp time.Time // zero: none
	Value     []byte    // nil: a tombstone
	given     []string  // the fields that say the value
}

// Expect is what a case wants. What is not set is not looked at.
type Expect struct {
	MessageKey Wanted[string]
	Filter     Wanted[bool]
	Method     Wanted[string]
	URL        Wanted[string]
	Headers    []HeaderText   // some of the request's; a nil value: there must be none of this name
	Body       Wanted[any]    // compared as JSON
	BodyText   Wanted[string] // compared byte for byte
	Error      Wanted[message.Reason]
}

// Request says whether the case wants a request to be made.
func (e *Expect) Request() bool {
	return e.Method.Set || e.URL.Set || len(e.Headers) > 0 || e.Body.Set || e.BodyText.Set
}

// Any says whether the case wants anything of the record.
func (e *Expect) Any() bool {
	return e.Request() || e.MessageKey.Set || e.Filter.Set || e.Error.Set
}

// Wanted is a value that is wanted, and where that is written.
type Wanted[V any] struct {
	Value        V
	Set          bool
	Line, Column int
}

// HeaderText is a header of a case. A list of values is one for each.
type HeaderText struct {
	Name         string
	Value        *string // nil: null
	Line, Column int
}

// Reply is an answer and what is wanted of it.
type Reply struct {
	Answer
	Line, Column int
	Verdict      Wanted[message.Verdict]
	Reason       Wanted[string]
	ErrorCode    Wanted[string]
}

// Answer is what came of a request: a status, an error, or a status with a body that did not come in whole.
type Answer struct {
	Status   int // 0: none
	Headers  []HeaderText
	Body     []byte
	Error    message.ErrorClass
	Duration time.Duration
}

// LoadCases reads and checks a file of cases. Its error is a Faults when the file can be read.
func LoadCases(path string) (*Cases, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		return nil, fmt.Errorf("reading the test cases %s: %w; check the path", path, err)
	}
	p, text := newParser(path, data)
	p.literal, p.kindOfFile, p.leastOfFile = true, "a file of test cases", "cases"
	c := &Cases{Path: path}
	if root := p.tree(text); root != nil {
		for _, set := range readFields(p, root, "", casesFields()) {
			set(c)
		}
		p.checkCases(c)
	}
	if len(p.faults) > 0 {
		return nil, p.faults.sorted()
	}
	return c, nil
}

// ParseAnswer reads an answer: {status, headers, body, error, duration_ms}. Its error is a Faults.
func ParseAnswer(name string, data []byte) (*Answer, error) {
	p, text := newParser(name, data)
	p.literal, p.kindOfFile, p.leastOfFile = true, "an answer", "status or error"
	a := &Answer{}
	if root := p.tree(text); root != nil {
		for _, set := range readFields(p, root, "", answerFields()) {
			set(a)
		}
		if len(p.faults) == 0 {
			p.checkAnswer(a, root, "")
		}
	}
	if len(p.faults) > 0 {
		return nil, p.faults.sorted()
	}
	return a, nil
}

// Lookup returns a lookup for Parse that finds what stands in for variables first.
func (c *Cases) Lookup(otherwise func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if v, ok := c.Env[name]; ok {
			return v, true
		}
		return otherwise(name)
	}
}

// Names returns the names that something stands in for, sorted.
func (c *Cases) Names() []string { return slices.Sorted(maps.Keys(c.Env)) }

// Check reports cases of routes that the file does not have.
func (c *Cases) Check(f *File) error {
	var faults Faults
	for _, one := range c.Cases {
		if f.Route(one.Route) != nil {
			continue
		}
		message := fmt.Sprintf("there is no route %q in %s; it has %s", one.Route, f.Path, strings.Join(f.Names(), ", "))
		if near := nearest(one.Route, f.Names()); near != "" {
			message += "; did you mean " + near + "?"
		}
		faults = append(faults, Fault{c.Path, one.routeAt.line, one.routeAt.column, "cases[" + one.Name + "].route", message})
	}
	if faults == nil {
		return nil
	}
	return faults
}

func (p *parser) checkCases(c *Cases) {
	names := map[string]int{}
	for i := range c.Cases {
		one := &c.Cases[i]
		at := "cases[" + one.Name + "]"
		fault := func(message string) { p.faultAt(one.Line, one.Column, at, message) }
		if first, twice := names[one.Name]; twice && one.Name != "" {
			fault(fmt.Sprintf("a case of this name stands in line %d already; give it another", first))
		}
		names[one.Name] = one.Line
		e := &one.Expect
		switch {
		case !e.Any() && len(one.Replies) == 0:
			fault("checks nothing; add expect, or responses")
		case e.Any() && one.Input == nil:
			fault("expects something of a record and has none; add input")
		case e.Error.Set && e.Request():
			fault("expects a request and an error; remove one")
		case e.Filter.Set && !e.Filter.Value && (e.Request() || e.MessageKey.Set || e.Error.Set):
			fault("expects filter: false and more; a record that is not taken is not looked at any further, so remove the rest")
		case e.Body.Set && e.BodyText.Set:
			fault("has both body and body_text; remove one")
		}
		if one.Input != nil && len(one.Input.given) != 1 {
			fault("input needs one of value, value_file, value_base64 and tombstone" + givenText(one.Input.given))
		}
	}
}

func givenText(given []string) string {
	if len(given) == 0 {
		return "; add one"
	}
	return ", and has " + strings.Join(given, " and ") + "; remove the others"
}

// checkAnswer reports answers that no request can have.
func (p *parser) checkAnswer(a *Answer, n *node, at string) {
	wrong := ""
	switch a.Error {
	case message.ErrNone:
		if a.Status == 0 {
			wrong = "needs status, or error where no answer came; add one"
		}
	case message.ErrConnect, message.ErrDNS, message.ErrTLS:
		if a.Status != 0 {
			wrong = fmt.Sprintf("has status and error: %s, which means that no answer came; remove one", a.Error)
		}
	case message.ErrTooLarge, message.ErrIncomplete:
		if a.Status == 0 {
			wrong = fmt.Sprintf("has error: %s, which is about the body of an answer, and no status; add it", a.Error)
		}
	case message.ErrTimeout, message.ErrReset, message.ErrCanceled:
	}
	if a.Status == 0 && (len(a.Headers) > 0 || a.Body != nil) && wrong == "" {
		wrong = "has headers or body and no status; add it"
	}
	if wrong != "" && n.kind == kindMap {
		p.fault(n, at, wrong)
	}
}

func casesFields() []field[Cases] {
	return []field[Cases]{
		{
			name: "env", doc: "Stands in for environment variables of the route file, and for files: {NAME: text, \"file:/path\": text}. What is not here comes from the environment.",
			value: into(environment(), func(c *Cases, v map[string]string) { c.Env = v }),
		},
		{
			name: "cases", required: true, doc: "The test cases.",
			value: into(list(caseType(), nil), func(c *Cases, v []Case) { c.Cases = v }),
		},
	}
}

func caseFields() []field[Case] {
	return []field[Case]{
		{
			name: "name", required: true, doc: "What the case shows, for people.",
			value: into(anyText(), func(c *Case, v string) { c.Name = v }),
		},
		{
			name: "route", required: true, doc: "The route's name.",
			value: into(placed(anyText()), func(c *Case, v Wanted[string]) {
				c.Route, c.routeAt = v.Value, &node{line: v.Line, column: v.Column}
			}),
		},
		{
			name: "input", doc: "A record.",
			value: into(object(inputFields()...), func(c *Case, v Input) { c.Input = &v }),
		},
		{
			name: "expect", doc: "What the route is to make of the record.",
			value: into(object(expectFields()...), func(c *Case, v Expect) { c.Expect = v }),
		},
		{
			name: "responses", doc: "Answers, and how they are to be judged.",
			value: into(list(replyType(), nil), func(c *Case, v []Reply) { c.Replies = v }),
		},
	}
}

// caseType remembers where a case begins.
func caseType() typ[Case] {
	t := object(caseFields()...)
	return typ[Case]{
		parse: func(p *parser, n *node, at string) (Case, bool) {
			if name := n.get("name"); name != nil && name.kind == kindText && name.raw != "" {
				at = "cases[" + name.raw + "]"
			}
			c, ok := t.parse(p, n, at)
			c.Line, c.Column = n.line, n.column
			return c, ok
		},
		schema: t.schema,
	}
}

func inputFields() []field[Input] {
	return []field[Input]{
		{
			name: "topic", doc: "The topic. Default: the first one that the route names.",
			value: into(topicName(), func(i *Input, v string) { i.Topic = v }),
		},
		{
			name: "partition", doc: "The partition.",
			value: into(number(anInteger, 0, 1<<31-1, strconv.Atoi, itoa).withSchema("integer").withDefault(0), func(i *Input, v int) { i.Partition = v }),
		},
		{
			name: "offset", doc: "The offset.",
			value: into(number(anInteger, 0, 1<<62, strconv.Atoi, itoa).withSchema("integer").withDefault(0), func(i *Input, v int) { i.Offset = v }),
		},
		{
			name: "key", doc: "The record's key. Default: none.",
			value: into(anyText(), func(i *Input, v string) { i.Key = &v }),
		},
		{
			name: "headers", doc: "The record's headers: a mapping from names to text, null, or a list of these.",
			value: into(headerTexts(), func(i *Input, v []HeaderText) { i.Headers = v }),
		},
		{
			name: "timestamp", doc: "The record's time, RFC 3339. Default: none.",
			value: into(timestamp(), func(i *Input, v time.Time) { i.Timestamp = v }),
		},
		{
			name: "value", doc: "The record's value: text as it is, anything else as JSON.",
			value: into(payload(), func(i *Input, v []byte) { i.Value, i.given = v, append(i.given, "value") }),
		},
		{
			name: "value_file", doc: "A file that holds the record's value, relative to this one.",
			value: into(fileContent(), func(i *Input, v []byte) { i.Value, i.given = v, append(i.given, "value_file") }),
		},
		{
			name: "value_base64", doc: "The record's value in base64.",
			value: into(base64Bytes(), func(i *Input, v []byte) { i.Value, i.given = v, append(i.given, "value_base64") }),
		},
		{
			name: "tombstone", doc: "true: the record's value is null.",
			value: into(boolean(), func(i *Input, v bool) {
				if v {
					i.given = append(i.given, "tombstone")
				}
			}),
		},
	}
}

func expectFields() []field[Expect] {
	return []field[Expect]{
		{
			name: "message_key", doc: "The message key.",
			value: into(placed(anyText()), func(e *Expect, v Wanted[string]) { e.MessageKey = v }),
		},
		{
			name: "filter", doc: "Whether the route takes the record. Default: true, where anything else is expected.",
			value: into(placed(boolean()), func(e *Expect, v Wanted[bool]) { e.Filter = v }),
		},
		{
			name: "request", doc: "The request, or some of it.", value: group(expectedRequest()...),
		},
		{
			name: "error", doc: "Why no request can be made: undecodable or unmappable.",
			value: into(placed(choice([]message.Reason{message.Undecodable, message.Unmappable}, nil)), func(e *Expect, v Wanted[message.Reason]) { e.Error = v }),
		},
	}
}

func expectedRequest() []field[Expect] {
	return []field[Expect]{
		{name: "method", doc: "The method.", value: into(placed(method()), func(e *Expect, v Wanted[string]) { e.Method = v })},
		{name: "url", doc: "The whole URL.", value: into(placed(anyText()), func(e *Expect, v Wanted[string]) { e.URL = v })},
		{
			name: "headers", doc: "Some of the headers. null: there is none of this name.",
			value: into(headerTexts(), func(e *Expect, v []HeaderText) { e.Headers = v }),
		},
		{
			name: "body", doc: "The body, compared as JSON: order and blanks do not matter.",
			value: into(placed(anything()), func(e *Expect, v Wanted[any]) { e.Body = v }),
		},
		{
			name: "body_text", doc: "The body, compared byte for byte.",
			value: into(placed(anyText()), func(e *Expect, v Wanted[string]) { e.BodyText = v }),
		},
	}
}

func answerFields() []field[Answer] {
	return []field[Answer]{
		{
			name: "status", doc: "The HTTP status.",
			value: into(number(anInteger, 100, 999, strconv.Atoi, itoa).withSchema("integer"), func(a *Answer, v int) { a.Status = v }),
		},
		{
			name: "headers", doc: "The headers: a mapping from names to text or a list of texts.",
			value: into(headerTexts(), func(a *Answer, v []HeaderText) { a.Headers = v }),
		},
		{
			name: "body", doc: "The body: text as it is, anything else as JSON.",
			value: into(payload(), func(a *Answer, v []byte) { a.Body = v }),
		},
		{
			name: "error", doc: "Why no answer came, or, beside a status, no whole body.",
			value: into(choice(message.ErrorClasses(), nil), func(a *Answer, v message.ErrorClass) { a.Error = v }),
		},
		{
			name: "duration_ms", doc: "How long it took, in milliseconds.",
			value: into(number(anInteger, 0, 86_400_000, strconv.Atoi, itoa).withSchema("integer").withDefault(0), func(a *Answer, v int) {
				a.Duration = time.Duration(v) * time.Millisecond
			}),
		},
	}
}

// replyType is an answer with what is wanted of it.
func replyType() typ[Reply] {
	var fields []field[Reply]
	for _, f := range answerFields() {
		fields = append(fields, field[Reply]{name: f.name, doc: f.doc, value: within(f.value, func(r *Reply) *Answer { return &r.Answer })})
	}
	t := object(append(
		fields,
		field[Reply]{
			name: "verdict", doc: "The verdict: delivered, retry, hold or reject.",
			value: into(placed(choice(message.Verdicts(), nil)), func(r *Reply, v Wanted[message.Verdict]) { r.Verdict = v }),
		},
		field[Reply]{
			name: "reason", doc: "The reason of the rule that matches; '' for none.",
			value: into(placed(anyText()), func(r *Reply, v Wanted[string]) { r.Reason = v }),
		},
		field[Reply]{
			name: "error_code", doc: "What response.error_code finds; '' for nothing.",
			value: into(placed(anyText()), func(r *Reply, v Wanted[string]) { r.ErrorCode = v }),
		},
	)...)
	return typ[Reply]{
		parse: func(p *parser, n *node, at string) (Reply, bool) {
			r, ok := t.parse(p, n, at)
			r.Line, r.Column = n.line, n.column
			if !ok {
				return r, false
			}
			p.checkAnswer(&r.Answer, n, at)
			if !r.Verdict.Set && !r.Reason.Set && !r.ErrorCode.Set {
				p.fault(n, at, "checks nothing; add verdict, reason or error_code")
			}
			return r, true
		},
		schema: t.schema,
	}
}

// within makes a value of a part of U a value of U.
func within[T, U any](v value[T], part func(*U) *T) value[U] {
	return value[U]{
		read: func(p *parser, n *node, at string) func(*U) {
			set := v.read(p, n, at)
			if set == nil {
				return nil
			}
			return func(u *U) { set(part(u)) }
		},
		schema: v.schema,
	}
}

// placed keeps where a value stands.
func placed[V any](t typ[V]) typ[Wanted[V]] {
	return typ[Wanted[V]]{
		parse: func(p *parser, n *node, at string) (Wanted[V], bool) {
			v, ok := t.parse(p, n, at)
			return Wanted[V]{v, true, n.line, n.column}, ok
		},
		schema: t.schema,
	}
}

// withSchema names the type for editors.
func (t typ[V]) withSchema(name string) typ[V] {
	t.schema = func() schema { return schema{"type": name} }
	return t
}

// anyText is a string without limits.
func anyText() typ[string] { return text("", func(string) string { return "" }) }

// variableName is what env can stand in for.
var variableName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*|file:[^}]+)$`)

func environment() typ[map[string]string] {
	return typ[map[string]string]{
		parse: func(p *parser, n *node, at string) (map[string]string, bool) {
			if n.kind != kindMap {
				p.fault(n, at, "must be a mapping from names of variables to text"+found(n))
				return nil, false
			}
			env := map[string]string{}
			for _, e := range n.entries {
				where := join(at, e.key)
				switch {
				case !variableName.MatchString(e.key):
					p.fault(e.at, where, "is no name of a variable; write NAME, or file:/path for ${file:/path}")
				case e.node.kind == kindText || e.node.kind == kindNumber || e.node.kind == kindBool:
					env[e.key] = e.node.raw
				default:
					p.fault(e.node, where, "must be text"+found(e.node))
				}
			}
			return env, true
		},
		schema: func() schema {
			return schema{"type": "object", "additionalProperties": schema{"type": []string{"string", "number", "boolean"}}}
		},
	}
}

// headerTexts is a mapping from names to text, null or a list of these.
func headerTexts() typ[[]HeaderText] {
	scalar := schema{"type": []string{"string", "number", "boolean", "null"}}
	return typ[[]HeaderText]{
		parse: func(p *parser, n *node, at string) ([]HeaderText, bool) {
			if n.kind != kindMap {
				p.fault(n, at, "must be a mapping from names to text"+found(n))
				return nil, false
			}
			good := true
			var all []HeaderText
			for _, e := range n.entries {
				values := []*node{e.node}
				if e.node.kind == kindList {
					values = e.node.items
				}
				for _, v := range values {
					h := HeaderText{Name: e.key, Line: v.line, Column: v.column}
					switch v.kind {
					case kindText, kindNumber, kindBool:
						h.Value = &v.raw
					case kindNull:
					case kindList, kindMap:
						p.fault(v, join(at, e.key), "must be text, null or a list of these"+found(v))
						good = false
					}
					all = append(all, h)
				}
			}
			return all, good
		},
		schema: func() schema {
			return schema{"type": "object", "additionalProperties": schema{"anyOf": []any{scalar, schema{"type": "array", "items": scalar}}}}
		},
	}
}

func timestamp() typ[time.Time] {
	return typ[time.Time]{
		parse: func(p *parser, n *node, at string) (time.Time, bool) {
			t, err := time.Parse(time.RFC3339Nano, n.raw)
			if n.kind != kindText || err != nil {
				p.fault(n, at, "must be a time such as 2026-12-03T10:15:30Z"+found(n))
				return t, false
			}
			return t, true
		},
		schema: func() schema { return schema{"type": "string", "format": "date-time"} },
	}
}

// payload is text as it is, and anything else as JSON.
func payload() typ[[]byte] {
	return typ[[]byte]{
		parse: func(p *parser, n *node, at string) ([]byte, bool) {
			if n.kind == kindText {
				return []byte(n.raw), true
			}
			v, ok := anything().parse(p, n, at)
			if !ok {
				return nil, false
			}
			b, err := jq.Marshal(v)
			if err != nil {
				p.fault(n, at, err.Error())
			}
			return b, err == nil
		},
		schema: func() schema { return schema{} },
	}
}

func fileContent() typ[[]byte] {
	return typ[[]byte]{
		parse: func(p *parser, n *node, at string) ([]byte, bool) {
			e, ok := p.text(n, at)
			if !ok {
				return nil, false
			}
			path := e.text
			if !filepath.IsAbs(path) {
				path = filepath.Join(filepath.Dir(p.name), path)
			}
			b, err := os.ReadFile(path)
			if err != nil {
				var pathErr *fs.PathError
				if errors.As(err, &pathErr) {
					err = pathErr.Err
				}
				p.fault(n, at, fmt.Sprintf("reading %s: %v; check the path, which is relative to this file", path, err))
				return nil, false
			}
			if b == nil {
				b = []byte{}
			}
			return b, true
		},
		schema: func() schema { return schema{"type": "string"} },
	}
}

func base64Bytes() typ[[]byte] {
	return typ[[]byte]{
		parse: func(p *parser, n *node, at string) ([]byte, bool) {
			e, ok := p.text(n, at)
			if !ok {
				return nil, false
			}
			b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(e.text), ""))
			if err != nil {
				p.fault(n, at, "is not base64 (with + and /, and = at the end); the command base64 writes it")
				return nil, false
			}
			if b == nil {
				b = []byte{}
			}
			return b, true
		},
		schema: func() schema { return schema{"type": "string"} },
	}
}
