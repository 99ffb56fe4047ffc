package route

import (
	"strconv"
	"strings"
)

// FaultAt returns a fault of a field of a route, such as request.body, request.headers.X-Park or response.rules[0].when,
// at the place in the file where the field's text stands. Offset is counted in that text as Source of its program or
// template shows it; a field that is not in the file has no place. The message shows no secret.
func (f *File) FaultAt(r *Route, field string, offset int, message string) Fault {
	fault := Fault{File: f.Path, Field: "routes[" + r.Name + "]." + field, Message: f.Redact(message)}
	n, at := r.find(field)
	if n == nil {
		return fault
	}
	fault.Field = at
	p := parser{lines: f.lines}
	fault.Line, fault.Column = p.place(n, rawOffset(n.spans, offset))
	return fault
}

// TextOf returns a field's text as it stands in the file, ${…} included, on one line; nothing when it is not set.
func (r *Route) TextOf(field string) string {
	n, _ := r.find(field)
	if n == nil {
		return ""
	}
	return strings.Join(strings.Fields(n.raw), " ")
}

// find returns a field's node and its path in the file.
func (r *Route) find(field string) (n *node, at string) {
	for head := field; ; {
		if o, ok := r.set[head]; ok {
			rest := field[len(head):]
			return o.node.descend(rest), o.at + rest
		}
		i := strings.LastIndexAny(head, ".[")
		if i < 0 {
			return nil, ""
		}
		head = head[:i]
	}
}

// descend follows the rest of a path: [0].when, or .X-Park. A name may have dots.
func (n *node) descend(rest string) *node {
	switch {
	case n == nil || rest == "":
		return n
	case rest[0] == '[':
		index, rest, _ := strings.Cut(rest[1:], "]")
		i, err := strconv.Atoi(index)
		if err != nil || i < 0 || i >= len(n.items) {
			return nil
		}
		return n.items[i].descend(rest)
	}
	return n.get(rest[1:])
}
