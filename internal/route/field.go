package route

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// field is a field of a mapping that makes up a T.
type field[T any] struct {
	name     string
	doc      string // for editors and docs/routes.md
	required bool
	or       string // required, unless the field of this name is there
	own      bool   // only a route's own: it can't stand in defaults
	later    bool   // its feature is not in this version
	value    value[T]
}

// value reads a field's value into a T.
type value[T any] struct {
	// read returns what sets the value, or nil when it is at fault, which it has reported.
	read   func(p *parser, n *node, at string) func(*T)
	schema func() schema
	fields []field[T] // of a group
}

// into makes a value of a type and of where it goes.
func into[T, V any](t typ[V], set func(*T, V)) value[T] {
	return value[T]{
		read: func(p *parser, n *node, at string) func(*T) {
			v, ok := t.parse(p, n, at)
			if !ok {
				return nil
			}
			return func(target *T) { set(target, v) }
		},
		schema: t.schema,
	}
}

// group makes a value of fields that belong to the same T.
func group[T any](fields ...field[T]) value[T] {
	return value[T]{
		read: func(p *parser, n *node, at string) func(*T) {
			sets := readFields(p, n, at, fields)
			return func(target *T) {
				for _, set := range sets {
					set(target)
				}
			}
		},
		schema: func() schema { return objectSchema(fields, false) },
		fields: fields,
	}
}

// readFields reads a mapping by its table of fields. Whatever is at fault is reported and left out.
func readFields[T any](p *parser, n *node, at string, fields []field[T]) []func(*T) {
	if n.kind != kindMap {
		p.fault(n, at, "must be a mapping of fields"+found(n))
		return nil
	}
	var sets []func(*T)
	for _, e := range n.entries {
		i := slices.IndexFunc(fields, func(f field[T]) bool { return f.name == e.key })
		if i < 0 {
			p.fault(e.at, join(at, e.key), "no field has this name"+suggestion(e.key, fields))
			continue
		}
		f := fields[i]
		switch {
		case f.later:
			p.fault(e.at, join(at, f.name), "not available in this version; remove it")
		case f.own && p.inDefaults:
			p.fault(e.at, join(at, f.name), "can't stand in defaults; write it into each route")
		case e.node.broken:
		case e.node.kind == kindNull:
			p.fault(e.at, join(at, f.name), "has no value; give it one or remove it")
		default:
			if set := f.value.read(p, e.node, join(at, f.name)); set != nil {
				sets = append(sets, remember(e.node, join(at, f.name), set))
			}
		}
	}
	for _, f := range fields {
		switch {
		case p.inDefaults || n.has(f.name):
		case f.required:
			p.fault(n, join(at, f.name), "is missing; add it")
		case f.or != "" && !n.has(f.or):
			p.fault(n, join(at, f.name), "is missing; add it, or "+f.or)
		}
	}
	return sets
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// suggestion is the end of the message about an unknown name: where such a field exists, or which ones there are.
func suggestion[T any](name string, fields []field[T]) string {
	names := paths("", fields)
	for _, path := range names {
		if strings.HasSuffix(path, "."+name) {
			return "; did you mean " + path + "?"
		}
	}
	if near := nearest(name, names); near != "" {
		return "; did you mean " + near + "?"
	}
	var here []string
	for _, f := range fields {
		if !f.later {
			here = append(here, f.name)
		}
	}
	return "; there are " + strings.Join(here, ", ")
}

// paths returns the paths of all fields that this version has.
func paths[T any](prefix string, fields []field[T]) []string {
	var all []string
	for _, f := range fields {
		if !f.later {
			all = append(all, join(prefix, f.name))
			all = append(all, paths(join(prefix, f.name), f.value.fields)...)
		}
	}
	return all
}

// found says what stands where something else should.
func found(n *node) string {
	switch n.kind {
	case kindText, kindNumber, kindBool:
		return ", not " + n.kind.String() + " (" + shown(n) + ")"
	case kindNull, kindList, kindMap:
	}
	return ", not " + n.kind.String()
}

// shown is a scalar as it stands in the file, cut to a length that fits a line.
func shown(n *node) string {
	const longest = 60
	runes := []rune(n.raw)
	if len(runes) > longest {
		runes = append(runes[:longest], '…')
	}
	return strconv.Quote(string(runes))
}

// object reads mappings of the fields into T values.
func object[T any](fields ...field[T]) typ[T] {
	return typ[T]{
		parse: func(p *parser, n *node, at string) (T, bool) {
			var v T
			before := len(p.faults)
			was := p.inDefaults
			p.inDefaults = false // a value is whole wherever it stands
			defer func() { p.inDefaults = was }()
			for _, set := range readFields(p, n, at, fields) {
				set(&v)
			}
			return v, len(p.faults) == before
		},
		schema: func() schema { return objectSchema(fields, false) },
	}
}

// list reads lists of at least one value. check, if there is one, looks at each and at those before it.
func list[V any](of typ[V], check func(v V, before []V) string) typ[[]V] {
	return typ[[]V]{
		parse: func(p *parser, n *node, at string) ([]V, bool) {
			if n.kind != kindList {
				p.fault(n, at, "must be a list, such as [a, b]"+found(n))
				return nil, false
			}
			if len(n.items) == 0 {
				p.fault(n, at, "is empty; name at least one, or remove it")
				return nil, false
			}
			good := true
			var all []V
			for i, item := range n.items {
				where := fmt.Sprintf("%s[%d]", at, i)
				v, ok := of.parse(p, item, where)
				if ok && check != nil {
					if wrong := check(v, all); wrong != "" {
						p.fault(item, where, wrong)
						ok = false
					}
				}
				good = good && ok
				all = append(all, v)
			}
			return all, good
		},
		schema: func() schema { return schema{"type": "array", "minItems": 1, "items": of.schema()} },
	}
}

// schema is a JSON Schema.
type schema map[string]any

// objectSchema describes a mapping; in defaults nothing is required and a route's own fields are left out.
func objectSchema[T any](fields []field[T], inDefaults bool) schema {
	properties := schema{}
	var required []string
	var either []any
	for _, f := range fields {
		if f.later || inDefaults && f.own {
			continue
		}
		s := schema{}
		if f.value.fields != nil {
			s = objectSchema(f.value.fields, inDefaults)
		} else {
			maps.Copy(s, f.value.schema())
		}
		s["description"] = f.doc
		properties[f.name] = s
		if f.required && !inDefaults {
			required = append(required, f.name)
		}
		if f.or != "" && !inDefaults {
			either = []any{schema{"required": []string{f.name}}, schema{"required": []string{f.or}}}
		}
	}
	s := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if required != nil {
		s["required"] = required
	}
	if either != nil {
		s["anyOf"] = either
	}
	return s
}
