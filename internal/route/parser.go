package route

import "strings"

// parser reads one file. It goes on after a fault, so that all of them are reported.
type parser struct {
	name       string
	lines      []string
	lookup     func(string) (string, bool)
	faults     Faults
	expansions []expansion
	inDefaults bool // reading the mapping under defaults
	varsRead   int
	// mark, unless nil, gives what stands for a ${…} in vars and in requests.
	mark func(reference, value string) string
	// literal is a file in which ${…} stands for nothing but itself.
	literal bool
	// kindOfFile names the file in faults that are about it as a whole, and leastOfFile what it must have.
	kindOfFile, leastOfFile string
}

// Parse checks a route file that has been read from the path name. Its error is a Faults. lookup returns the value of
// an environment variable, as os.LookupEnv does; for ${file:/path} it is asked for file:/path first.
func Parse(name string, data []byte, lookup func(string) (string, bool)) (*File, error) {
	p, text := newParser(name, data)
	p.lookup = lookup
	return p.parse(text, data)
}

func newParser(name string, data []byte) (p *parser, text []byte) {
	s := strings.TrimPrefix(string(data), "\uFEFF")
	return &parser{name: name, kindOfFile: "a route file", leastOfFile: "version: 1 and routes", lines: strings.Split(strings.ReplaceAll(s, "\r\n", "\n"), "\n")}, []byte(s)
}

func (p *parser) parse(text, data []byte) (*File, error) {
	f := &File{Path: p.name, data: data, lines: p.lines}
	if root := p.tree(text); root != nil {
		p.file(f, root)
	}
	if len(p.faults) > 0 {
		return nil, p.faults.sorted()
	}
	f.expanded = p.expansions
	return f, nil
}

func (p *parser) faultAt(line, column int, at, message string) {
	p.faults = append(p.faults, Fault{p.name, line, column, at, message})
}

func (p *parser) fault(n *node, at, message string) { p.faultAt(n.line, n.column, at, message) }

// document is the file's top level as it is read.
type document struct {
	vars     map[string]any
	defaults []func(*Route)
	routes   *node
}

func (p *parser) file(f *File, root *node) {
	var d document
	for _, set := range readFields(p, root, "", topFields()) {
		set(&d)
	}
	if d.routes != nil {
		f.Routes = p.routes(d)
		p.holds(f)
	}
}

// routes reads the routes, each on top of the defaults.
func (p *parser) routes(d document) []*Route {
	switch {
	case d.routes.kind != kindList:
		p.fault(d.routes, "routes", "must be a list of routes, each beginning with - name: …"+found(d.routes))
	case len(d.routes.items) == 0:
		p.fault(d.routes, "routes", "is empty; add a route")
	}
	var all []*Route
	names := map[string]*node{}
	for i, n := range d.routes.items {
		at := routeAt(i, n)
		r := newRoute()
		r.Vars = d.vars
		for _, set := range d.defaults {
			set(r)
		}
		for _, set := range readFields(p, n, at, routeFields()) {
			set(r)
		}
		if r.Name != "" {
			if first := names[r.Name]; first != nil {
				p.fault(n.get("name"), at+".name", "a route of this name stands in line "+itoa(first.line)+" already; a route's name is its identity, choose another")
			}
			names[r.Name] = n.get("name")
		}
		p.finish(r)
		all = append(all, r)
	}
	p.deadLetters(all)
	return all
}

// routeAt is the path of a route in messages: by its name if it has one, else by its index.
func routeAt(i int, n *node) string {
	if name := n.get("name"); name != nil && name.kind == kindText && name.raw != "" && len(name.raw) <= maxName {
		return "routes[" + name.raw + "]"
	}
	return "routes[" + itoa(i) + "]"
}

// origin is where a field of a route was set.
type origin struct {
	at   string // the field's path in the file: routes[a].retry.max or defaults.retry.max
	node *node
}

// remember makes set keep where the field was set.
func remember[T any](n *node, at string, set func(*T)) func(*T) {
	return func(target *T) {
		set(target)
		r, ok := any(target).(*Route)
		if !ok {
			return
		}
		path, ok := strings.CutPrefix(at, "defaults.")
		if !ok {
			_, path, _ = strings.Cut(at, "].")
		}
		if r.set == nil {
			r.set = map[string]origin{}
		}
		r.set[path] = origin{at, n}
	}
}

// topFields are the fields of the file.
func topFields() []field[document] {
	return []field[document]{
		{
			name: "version", required: true, doc: "Version of the file's format: 1.",
			value: value[document]{
				read: func(p *parser, n *node, at string) func(*document) {
					if n.raw != "1" || n.kind != kindNumber {
						p.fault(n, at, "must be 1, the only version of the format that this Ferry knows"+found(n))
					}
					return nil
				},
				schema: func() schema { return schema{"const": 1} },
			},
		},
		{
			name: "vars", doc: "Values that every jq program sees as $vars: a mapping of any shape. The place for ${NAME} and ${file:/path}.",
			value: value[document]{
				read: func(p *parser, n *node, at string) func(*document) {
					if n.kind != kindMap {
						p.fault(n, at, "must be a mapping, such as {token: \"${TOKEN}\"}"+found(n))
						return nil
					}
					v, _ := anything().parse(p, n, at)
					m, _ := v.(map[string]any)
					return func(d *document) { d.vars = m }
				},
				schema: func() schema { return schema{"type": "object"} },
			},
		},
		{
			name: "defaults", doc: "Any fields of routes but name, topics, topics_regex and request. A route's own win, field by field.",
			value: value[document]{
				read: func(p *parser, n *node, at string) func(*document) {
					p.inDefaults = true
					sets := readFields(p, n, at, routeFields())
					p.inDefaults = false
					return func(d *document) { d.defaults = sets }
				},
				schema: func() schema { return objectSchema(routeFields(), true) },
			},
		},
		{
			name: "routes", required: true, doc: "The routes: which topics go to which destination, and how.",
			value: value[document]{
				read: func(_ *parser, n *node, _ string) func(*document) {
					return func(d *document) { d.routes = n }
				},
				schema: func() schema {
					return schema{"type": "array", "minItems": 1, "items": objectSchema(routeFields(), false)}
				},
			},
		},
	}
}
