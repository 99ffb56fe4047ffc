package route

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// expansion is a ${…} of the file and what it stood for.
type expansion struct {
	reference, value string
	cut              string // the end of the line that was taken off a file's content
	known            bool   // it is no secret, see Reveal
}

// Load reads and checks a route file. Its error is a Faults when the file can be read. lookup is that of Parse.
func Load(path string, lookup func(string) (string, bool)) (*File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		return nil, fmt.Errorf("reading the route file %s: %w; set FERRY_ROUTES to its path", path, err)
	}
	return Parse(path, data, lookup)
}

var reference = regexp.MustCompile(`^\$\{(?:([A-Za-z_][A-Za-z0-9_]*)|file:([^}]+))\}`)

// onlyReference matches a scalar that is nothing but one ${…}, which may stand for a number, a duration or a bool.
var onlyReference = regexp.MustCompile(`^\$\{[^}]*\}$`)

// expanded is a scalar's text after expansion.
type expanded struct {
	text  string
	spans []span
	any   bool // something was expanded
}

// expand replaces each ${…} of a scalar. What stands for it passes through escape first. Faults are reported; the
// reference then stands for nothing.
func (p *parser) expand(n *node, at string, escape func(string) string) (expanded, bool) {
	var out strings.Builder
	var e expanded
	good := true
	piece := func(s string, from int, whole bool) {
		start := out.Len()
		out.WriteString(s)
		e.spans = append(e.spans, span{start, out.Len(), from, whole})
	}
	raw := n.raw
	if p.literal {
		piece(raw, 0, false)
		e.text = raw
		return e, true
	}
	for at0 := 0; at0 < len(raw); {
		i := strings.Index(raw[at0:], "${")
		if i < 0 {
			piece(raw[at0:], at0, false)
			break
		}
		i += at0
		if i > at0 && raw[i-1] == '$' { // $${ is a literal ${
			piece(raw[at0:i-1], at0, false)
			piece("${", i-1, true)
			at0 = i + 2
			continue
		}
		piece(raw[at0:i], at0, false)
		m := reference.FindStringSubmatch(raw[i:])
		if m == nil {
			line, column := p.place(n, i)
			p.faultAt(line, column, at, "${ begins neither ${NAME} nor ${file:/path}; write $${ for a literal ${")
			return e, false
		}
		value, cut, err := p.resolve(m[1], m[2])
		if err != nil {
			line, column := p.place(n, i)
			p.faultAt(line, column, at, err.Error())
			good = false
		}
		if p.mark != nil && inRequest(at) {
			value = p.mark(m[0], value)
		}
		p.expansions = append(p.expansions, expansion{reference: m[0], value: value, cut: cut})
		piece(escape(value), i, true)
		e.any = true
		at0 = i + len(m[0])
	}
	e.text, n.spans = out.String(), e.spans
	return e, good
}

func verbatim(s string) string { return s }

// maxSecretFile is the largest file that ${file:…} reads.
const maxSecretFile = 1 << 20

var (
	errNotSet   = errors.New("is not set; set it in the environment, or write $${ for a literal ${")
	errNotText  = errors.New("does not hold text (it has a NUL or is not valid UTF-8)")
	errTooLarge = errors.New("is larger than 1 MiB")
)

// resolve returns what a reference stands for, and the end of the line that was cut off a file's content.
func (p *parser) resolve(name, path string) (value, cut string, err error) {
	if path == "" {
		value, ok := p.lookup(name)
		if !ok {
			return "", "", fmt.Errorf("the environment variable %s %w", name, errNotSet)
		}
		if !clean(value) {
			return "", "", fmt.Errorf("the environment variable %s %w", name, errNotText)
		}
		return value, "", nil
	}
	content, ok := p.lookup("file:" + path)
	if !ok {
		if content, err = readSecret(path); err != nil {
			return "", "", err
		}
	}
	value = strings.TrimSuffix(strings.TrimSuffix(content, "\n"), "\r")
	if !clean(value) {
		return "", "", fmt.Errorf("the file %s %w", path, errNotText)
	}
	return value, content[len(value):], nil
}

func readSecret(path string) (string, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxSecretFile {
		return "", fmt.Errorf("the file %s %w", path, errTooLarge)
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		return "", fmt.Errorf("reading the file %s: %w; check the path and who may read it", path, err)
	}
	return string(b), nil
}

func clean(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// hide puts the references back where their values stand in a text that we did not write ourselves.
func hide(s string, expansions []expansion, shortest int) string {
	byLength := slices.Clone(expansions)
	slices.SortStableFunc(byLength, func(a, b expansion) int { return len(b.value) - len(a.value) })
	for _, e := range byLength {
		if len(e.value) >= max(shortest, 1) && !e.known {
			s = strings.ReplaceAll(s, e.value, e.reference)
		}
	}
	return s
}

// Redact puts ${NAME} back where its value stands in a text that may show one. Values shorter than 4 bytes are left
// alone: they would be found everywhere.
func (f *File) Redact(s string) string { return hide(s, f.expanded, 4) }

// EnvNames returns the names of the environment variables that the file uses, sorted.
func (f *File) EnvNames() []string {
	var names []string
	for _, e := range f.expanded {
		if m := reference.FindStringSubmatch(e.reference); m != nil && m[1] != "" {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
