package route

import (
	"slices"
	"strings"
)

// Secret is what a ${…} of the file stood for.
type Secret struct {
	Reference string // ${NAME} or ${file:/path}, as in the file
	Value     string
	// Cut is what was taken off the end of a file's content: a line feed, with or without a carriage return, or nothing.
	Cut string
}

// Secrets returns what the ${…} of the file stood for, each once, in the order of the file.
func (f *File) Secrets() []Secret {
	var all []Secret
	for _, e := range f.expanded {
		if !slices.ContainsFunc(all, func(s Secret) bool { return s.Reference == e.reference }) {
			all = append(all, Secret{Reference: e.reference, Value: e.value, Cut: e.cut})
		}
	}
	return all
}

// Name returns the environment variable's name, or the file's path.
func (s Secret) Name() (name string, file bool) {
	m := reference.FindStringSubmatch(s.Reference)
	if m == nil {
		return "", false
	}
	return m[1] + m[2], m[2] != ""
}

// Reveal says that what these names stand for (NAME or file:/path) is no secret: Redact leaves it as it is.
func (f *File) Reveal(names ...string) {
	for i, e := range f.expanded {
		if slices.Contains(names, strings.Trim(e.reference, "${}")) {
			f.expanded[i].known = true
		}
	}
}

// Marked returns the file as it would be if mark's result stood for each ${…} in vars and in requests. What stands where
// in a request that is made from it tells where the values themselves stand in the real one.
func (f *File) Marked(mark func(Secret) string) (*File, error) {
	p, text := newParser(f.Path, f.data)
	p.mark = func(reference, value string) string { return mark(Secret{Reference: reference, Value: value}) }
	p.lookup = func(name string) (string, bool) {
		for _, e := range f.expanded {
			if e.reference == "${"+name+"}" {
				return e.value + e.cut, true
			}
		}
		return "", false
	}
	return p.parse(text, f.data)
}

// inRequest says whether a field's path is one of those whose text can come into a request.
func inRequest(at string) bool {
	return at == "vars" || strings.HasPrefix(at, "vars.") || strings.HasPrefix(at, "vars[") || strings.Contains(at, "].request.")
}
