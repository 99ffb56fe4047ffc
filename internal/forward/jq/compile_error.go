package jq

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/itchyny/gojq"
)

// CompileError is a fault in a program's text.
type CompileError struct {
	Line, Column int // where, both from 1; columns count characters
	Message      string
}

// Error returns line:column: message.
func (e *CompileError) Error() string { return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Message) }

func compileErrorAt(src string, offset int, message string) *CompileError {
	line, column := position(src, offset)
	return &CompileError{Line: line, Column: column, Message: message}
}

func parseError(src string, err error) *CompileError {
	var parse *gojq.ParseError
	if !errors.As(err, &parse) {
		return compileErrorAt(src, 0, err.Error())
	}
	// The offset is that behind the token.
	return compileErrorAt(src, parse.Offset-len(parse.Token), parse.Error())
}

// words is what a program names.
type words struct {
	calls   map[string]bool // functions and variables
	defined map[string]bool // functions and parameters that the program defines itself
	names   []called        // calls and labels, in the order of the text
	formats []string
	terms   []*gojq.Term // calls
	imports bool
}

type called struct {
	word    string // as it stands in the text
	message string // gojq's words when it is not defined
}

func wordsOf(q *gojq.Query) *words {
	w := &words{calls: map[string]bool{}, defined: map[string]bool{}}
	w.walk(reflect.ValueOf(q))
	return w
}

// walk visits the whole syntax tree. It goes by reflection because the tree has two dozen node types, and one that is
// forgotten would hide a variable from us.
func (w *words) walk(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			w.note(v.Interface())
			w.walk(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			w.walk(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			w.walk(v.Field(i))
		}
	default: // names and operators
	}
}

func (w *words) note(node any) {
	switch n := node.(type) {
	case *gojq.Func:
		w.calls[n.Name] = true
		message := "function not defined: " + n.Name + "/" + strconv.Itoa(len(n.Args))
		if n.Name[0] == '$' {
			message = "variable not defined: " + n.Name
		}
		w.names = append(w.names, called{n.Name, message})
	case *gojq.FuncDef:
		w.defined[n.Name] = true
		for _, arg := range n.Args {
			w.defined[arg] = true
		}
	case *gojq.ObjectKeyVal:
		if n.Val == nil && n.Key != "" && n.Key[0] == '$' { // {$topic}
			w.calls[n.Key] = true
			w.names = append(w.names, called{n.Key, "variable not defined: " + n.Key})
		}
	case *gojq.Term:
		if n.Func != nil {
			w.terms = append(w.terms, n)
		}
		if n.Format != "" {
			w.formats = append(w.formats, n.Format)
		}
		if n.Break != "" {
			w.names = append(w.names, called{n.Break, "label not defined: " + n.Break})
		}
	case *gojq.Import:
		w.imports = true
	}
}

// outside are the words that reach out of the program.
var outside = []called{
	{"$ENV", "the environment can't be read; put ${NAME} into vars and use $vars"},
	{"env", "the environment can't be read; put ${NAME} into vars and use $vars"},
	{"input", "there is no further input: a program sees one value"},
	{"inputs", "there is no further input: a program sees one value"},
	{"input_filename", "there is no input file"},
	{"input_line_number", "there is no input file"},
	{"modulemeta", "modules can't be loaded"},
	{"debug", "debug is not available; try the program with the jq command"},
	{"stderr", "stderr is not available; try the program with the jq command"},
}

var formats = []string{"@text", "@json", "@html", "@uri", "@urid", "@csv", "@tsv", "@sh", "@base64", "@base64d"}

func (w *words) refused(src string) error {
	if w.imports {
		return compileErrorAt(src, max(find(src, "import"), find(src, "include")), "modules can't be loaded; define the functions in the program")
	}
	for _, o := range outside {
		if w.calls[o.word] && !w.defined[o.word] {
			return compileErrorAt(src, find(src, o.word), o.word+": "+o.message)
		}
	}
	for _, f := range w.formats { // gojq tells of an unknown one only when it runs
		if !slices.Contains(formats, f) {
			return compileErrorAt(src, find(src, f), "format not defined: "+f+" (there are "+strings.Join(formats, " ")+")")
		}
	}
	return nil
}

// compileError finds the place of an error of gojq.Compile, which tells none: it is that of the name whose message
// this is. An error that is not about a name stands at the beginning.
func (w *words) compileError(src string, err error) *CompileError {
	i := slices.IndexFunc(w.names, func(c called) bool { return c.message == err.Error() })
	if i < 0 {
		return compileErrorAt(src, 0, err.Error())
	}
	message := err.Error()
	if w.names[i].word[0] == '$' {
		message += " (there are " + variableNames() + ")"
	}
	return compileErrorAt(src, find(src, w.names[i].word), message)
}
