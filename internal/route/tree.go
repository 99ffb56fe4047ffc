package route

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	yamlparser "github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

type kind int

const (
	kindNull kind = iota
	kindText
	kindNumber
	kindBool
	kindList
	kindMap
)

// String is the kind's name in messages.
func (k kind) String() string {
	return [...]string{"nothing", "text", "a number", "true or false", "a list", "a mapping"}[k]
}

type style int

const (
	stylePlain style = iota
	styleSingle
	styleDouble
	styleLiteral // |
	styleFolded  // >
)

// node is a value of the file.
type node struct {
	kind         kind
	line, column int
	style        style
	broken       bool   // reported already
	raw          string // scalars: as in the file, before ${…} is expanded
	number       any    // kindNumber: int64, uint64 or float64
	spans        []span // of a text that was expanded
	items        []*node
	entries      []entry
}

type entry struct {
	key  string
	at   *node // the key's place
	node *node
}

// get returns the value under a key, or nil.
func (n *node) get(key string) *node {
	if n == nil {
		return nil
	}
	for _, e := range n.entries {
		if e.key == key {
			return e.node
		}
	}
	return nil
}

// has says whether a key is there, whatever is under it.
func (n *node) has(key string) bool {
	return slices.ContainsFunc(n.entries, func(e entry) bool { return e.key == key })
}

// tree reads the file into nodes. It reports what is wrong with the YAML and returns nil when nothing can be made of it.
func (p *parser) tree(data []byte) *node {
	if i := invalidUTF8(data); i >= 0 {
		head := string(data[:i])
		line := 1 + strings.Count(head, "\n")
		p.faultAt(line, 1+utf8.RuneCountInString(head[strings.LastIndexByte(head, '\n')+1:]), "", "not valid UTF-8; save the file as UTF-8")
		return nil
	}
	file, err := parseYAML(data)
	if err != nil {
		p.syntaxFault(err)
		return nil
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			at := doc.Body.GetToken().Position
			if doc.Start != nil {
				at = doc.Start.Position
			}
			p.faultAt(at.Line, at.Column, "", "a second YAML document; "+p.kindOfFile+" is one document, remove the line ---")
			return nil
		}
		body = doc.Body
	}
	if body == nil {
		p.faultAt(1, 1, "", "the file is empty; it needs at least "+p.leastOfFile)
		return nil
	}
	t := treeBuilder{p: p, anchors: map[string]*node{}}
	return t.node(body)
}

func invalidUTF8(b []byte) int {
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

var errYAML = errors.New("the YAML can't be read")

// parseYAML parses the file; what makes the YAML library panic is an error too. Duplicate keys are found by us, so that
// they are reported together with everything else.
func parseYAML(data []byte) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			file, err = nil, fmt.Errorf("%w: %v", errYAML, r)
		}
	}()
	return yamlparser.ParseBytes(data, 0, yamlparser.AllowDuplicateMapKey())
}

func (p *parser) syntaxFault(err error) {
	var syntax yaml.Error
	if !errors.As(err, &syntax) || syntax.GetToken() == nil {
		p.faultAt(1, 1, "", err.Error())
		return
	}
	at := syntax.GetToken().Position
	message := "invalid YAML: " + syntax.GetMessage()
	line := ""
	if 0 < at.Line && at.Line <= len(p.lines) {
		line = p.lines[at.Line-1]
	}
	switch {
	case strings.Contains(line, "${") && strings.ContainsAny(line, "{["):
		message += `; inside {…} and […] put "${NAME}" in quotes`
	case strings.Contains(line, `\(`) && strings.Contains(line, `"`):
		message += `; put text with \(…) in single quotes, since a backslash means something else in double quotes`
	case strings.Contains(line, "\t"):
		message = "invalid YAML: a tab; indent with blanks"
	}
	p.faultAt(at.Line, max(at.Column, 1), "", message)
}

// treeBuilder makes nodes of the syntax tree.
type treeBuilder struct {
	p       *parser
	anchors map[string]*node
}

func (t *treeBuilder) node(n ast.Node) *node {
	switch n := n.(type) {
	case *ast.MappingNode:
		return t.mapping(n, n.Values)
	case *ast.MappingValueNode:
		return t.mapping(n, []*ast.MappingValueNode{n})
	case *ast.SequenceNode:
		list := at(n, kindList)
		for _, v := range n.Values {
			list.items = append(list.items, t.node(v))
		}
		return list
	case *ast.AnchorNode:
		v := t.node(n.Value)
		t.anchors[n.Name.GetToken().Value] = v
		return v
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		if v := t.anchors[name]; v != nil {
			return v
		}
		t.fault(n, "no anchor &"+name+" before this alias; define it above, or write the value out")
		v := at(n, kindNull)
		v.broken = true
		return v
	case *ast.TagNode:
		t.fault(n, "YAML tags can't be used; put text in quotes instead of "+n.Start.Value)
		return t.node(n.Value)
	}
	return t.scalar(n)
}

func (t *treeBuilder) fault(n ast.Node, message string) {
	pos := n.GetToken().Position
	t.p.faultAt(pos.Line, pos.Column, "", message)
}

func at(n ast.Node, k kind) *node {
	pos := n.GetToken().Position
	return &node{kind: k, line: pos.Line, column: max(pos.Column, 1)}
}

func (t *treeBuilder) scalar(n ast.Node) *node {
	switch n := n.(type) {
	case *ast.StringNode:
		s := at(n, kindText)
		s.raw = n.Value
		switch n.Token.Type {
		case token.SingleQuoteType:
			s.style = styleSingle
		case token.DoubleQuoteType:
			s.style = styleDouble
		default:
			if jsonNumber.MatchString(s.raw) { // 1e2, which the YAML library takes for text
				s.kind = kindNumber
			}
		}
		return s
	case *ast.LiteralNode:
		s := at(n, kindText)
		s.raw, s.style = n.Value.Value, styleLiteral
		if strings.HasPrefix(n.Start.Value, ">") {
			s.style = styleFolded
		}
		return s
	case *ast.IntegerNode:
		s := at(n, kindNumber)
		s.raw, s.number = n.Token.Value, n.Value
		return s
	case *ast.FloatNode:
		s := at(n, kindNumber)
		s.raw, s.number = n.Token.Value, n.Value
		return s
	case *ast.InfinityNode, *ast.NanNode:
		s := at(n, kindText) // no field takes them
		s.raw = n.GetToken().Value
		return s
	case *ast.BoolNode:
		s := at(n, kindBool)
		s.raw = n.Token.Value
		return s
	}
	return at(n, kindNull)
}

// mapping makes a mapping of its entries. Keys merged by << do not override those that stand there.
func (t *treeBuilder) mapping(n ast.Node, values []*ast.MappingValueNode) *node {
	m := at(n, kindMap)
	seen := map[string]*node{}
	var merged []*node
	for i, v := range values {
		key := t.key(v)
		if i == 0 && n.GetToken().Value != "{" {
			m.line, m.column = key.line, key.column
		}
		if _, merge := v.Key.(*ast.MergeKeyNode); merge {
			merged = append(merged, t.node(v.Value))
			continue
		}
		if first := seen[key.raw]; first != nil {
			t.p.fault(key, key.raw, fmt.Sprintf("stands here twice, first in line %d; remove one", first.line))
			continue
		}
		seen[key.raw] = key
		m.entries = append(m.entries, entry{key.raw, key, t.node(v.Value)})
	}
	for _, source := range merged {
		t.merge(m, source)
	}
	return m
}

func (t *treeBuilder) key(v *ast.MappingValueNode) *node {
	var n ast.Node = v.Key
	if explicit, ok := n.(*ast.MappingKeyNode); ok {
		n = explicit.Value
	}
	key := t.node(n)
	if key.kind == kindNull {
		key.raw = n.GetToken().Value
	}
	return key
}

func (t *treeBuilder) merge(m, source *node) {
	switch source.kind {
	case kindMap:
		for _, e := range source.entries {
			if m.get(e.key) == nil {
				m.entries = append(m.entries, e)
			}
		}
	case kindList:
		for _, item := range source.items {
			t.merge(m, item)
		}
	case kindNull, kindText, kindNumber, kindBool:
		t.p.faultAt(source.line, source.column, "", "<< takes a mapping, such as <<: *name")
	}
}
