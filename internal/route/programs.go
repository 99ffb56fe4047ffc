package route

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ferry-forward/ferry/internal/forward/jq"
)

// beforeSending are the variables that a program can't see that runs when a record is read.
var beforeSending = []string{"message_key", "attempt"}

// program is a jq program; unknown are variables that have no value yet where it runs.
func program(unknown ...string) typ[*jq.Program] {
	return typ[*jq.Program]{
		parse: func(p *parser, n *node, at string) (*jq.Program, bool) {
			e, ok := p.text(n, at)
			if !ok {
				return nil, false
			}
			if strings.TrimSpace(e.text) == "" {
				p.fault(n, at, "is empty; write a jq program, such as .id, or remove it")
				return nil, false
			}
			program, err := jq.Compile(e.text)
			if err != nil {
				p.jqFault(n, at, e, err)
				return nil, false
			}
			for _, name := range unknown {
				if program.Uses(name) {
					p.fault(n, at, "$"+name+" has no value when a record is read; use it in request or response")
					return nil, false
				}
			}
			return program, true
		},
		schema: func() schema { return schema{"type": "string", "minLength": 1} },
	}
}

// jqFault reports a compile error at its place in the file.
func (p *parser) jqFault(n *node, at string, e expanded, err error) {
	line, column, message := n.line, n.column, err.Error()
	var fault *jq.CompileError
	if errors.As(err, &fault) {
		offset := offsetOf(e.text, fault.Line, fault.Column)
		line, column = p.place(n, rawOffset(e.spans, offset))
		message = fault.Message
		if i := spanAt(e.spans, offset); i >= 0 && e.spans[i].whole {
			message = "what ${…} stands for here breaks the program; put it into vars, and use $vars.name"
		}
	}
	if e.any {
		message = hide(message, inQuotes(p.expansions), 1)
	}
	p.faultAt(line, column, at, "invalid jq: "+message)
}

// inQuotes adds to the expansions the forms in which their values stand in quoted text, and in the quoted text of a
// template.
func inQuotes(expansions []expansion) []expansion {
	all := slices.Clone(expansions)
	for _, e := range expansions {
		value := e.value
		for range 2 {
			b, err := jq.Marshal(value)
			if err != nil {
				break
			}
			value = string(b[1 : len(b)-1])
			all = append(all, expansion{reference: e.reference, value: value})
		}
	}
	return all
}

// offsetOf turns a line and a column, both from 1, into an offset.
func offsetOf(text string, line, column int) int {
	offset := 0
	for range line - 1 {
		i := strings.IndexByte(text[offset:], '\n')
		if i < 0 {
			break
		}
		offset += i + 1
	}
	for i := range text[offset:] {
		if column--; column == 0 {
			return offset + i
		}
	}
	return len(text)
}

// template is text with \(…) in it. check looks at the compiled template and the whole text.
func template(escape jq.Escape, check func(t *jq.Template) string) typ[*jq.Template] {
	return typ[*jq.Template]{
		parse: func(p *parser, n *node, at string) (*jq.Template, bool) {
			if _, ok := p.isText(n, at); !ok {
				return nil, false
			}
			// What ${…} stands for is fixed text: no backslash in it may begin an escape or a program.
			e, ok := p.expand(n, at, func(s string) string { return strings.ReplaceAll(s, `\`, `\\`) })
			if !ok {
				return nil, false
			}
			t, err := jq.CompileTemplate(e.text, escape)
			if err != nil {
				p.jqFault(n, at, e, err)
				return nil, false
			}
			if wrong := check(t); wrong != "" {
				p.fault(n, at, wrong)
				return nil, false
			}
			return t, true
		},
		schema: func() schema { return schema{"type": "string"} },
	}
}

// isText says whether a value is a string at all, and reports it when not.
func (p *parser) isText(n *node, at string) (expanded, bool) {
	if n.kind == kindText {
		return expanded{}, true
	}
	return p.text(n, at)
}

func urlTemplate() typ[*jq.Template] {
	t := template(jq.EscapeURL, urlFault)
	t.schema = func() schema { return schema{"type": "string", "pattern": `^([Hh][Tt][Tt][Pp][Ss]?://|\$\{)`} }
	return t
}

// urlFault says what is wrong with a URL, without showing it: it may hold secrets.
func urlFault(t *jq.Template) string {
	prefix, whole := t.Prefix()
	scheme, rest, ok := strings.Cut(prefix, "://")
	switch {
	case !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https"):
		return "must begin with http:// or https:// and a host"
	case strings.ContainsFunc(t.Sample("x"), func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return "has a blank or a line break in it; remove it (a URL on several lines can stand below >-), or write %20"
	case strings.Contains(t.Sample("x"), "#"):
		return "has a fragment (#…), which is never sent; remove it, or write %23"
	}
	authority := rest
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority = rest[:i]
	} else if !whole {
		return `\(…) can only stand behind the host; a host that depends on the record could send it anywhere, so make a route for each`
	}
	if strings.Contains(authority, "@") {
		return `user and password can't stand in the URL; put them into vars and a header: ` +
			`headers: {Authorization: 'Basic \("\($vars.user):\($vars.password)" | @base64)'}`
	}
	u, err := url.Parse(t.Sample("x"))
	var urlErr *url.Error
	switch {
	case errors.As(err, &urlErr) && strings.Contains(authority, "%"):
		return "the host has a % in it, which no host has"
	case err != nil:
		return "is no URL; check the host, the port and what follows each % (two hexadecimal digits, or %25)"
	case u.Hostname() == "":
		return "has no host; write it behind " + scheme + "://"
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return "has a port that is none; it can be 1 to 65535"
		}
	}
	return ""
}

// headers is a mapping from header names to templates.
func headers() typ[[]HeaderTemplate] {
	text := template(jq.EscapeHeader, func(t *jq.Template) string {
		if strings.ContainsFunc(t.Sample(""), func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return "has a line break or another control character in it, which no header can; below a block of text, >- leaves none"
		}
		return ""
	})
	return typ[[]HeaderTemplate]{
		parse: func(p *parser, n *node, at string) ([]HeaderTemplate, bool) {
			if n.kind != kindMap {
				p.fault(n, at, `must be a mapping from names to text, such as {X-Park: '\(.parkCode)'}`+found(n))
				return nil, false
			}
			good := true
			all := make([]HeaderTemplate, 0, len(n.entries))
			for _, e := range n.entries {
				where := join(at, e.key)
				if wrong := headerFault(e.key); wrong != "" {
					p.fault(e.at, at, fmt.Sprintf("%q %s", e.key, wrong))
					good = false
					continue
				}
				for _, other := range all {
					if strings.EqualFold(other.Name, e.key) {
						p.fault(e.at, where, "stands here twice, since upper and lower case are the same in HTTP; remove one")
						good = false
					}
				}
				if e.node.kind == kindNull {
					p.fault(e.at, where, "has no value; give it one or remove it")
					good = false
					continue
				}
				t, ok := text.parse(p, e.node, where)
				good = good && ok
				all = append(all, HeaderTemplate{e.key, t})
			}
			return all, good
		},
		schema: func() schema {
			return schema{"type": "object", "propertyNames": schema{"pattern": headerPattern}, "additionalProperties": schema{"type": "string"}}
		},
	}
}
