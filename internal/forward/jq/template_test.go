package jq

import (
	"errors"
	"strings"
	"testing"
)

func TestTemplate(t *testing.T) {
	t.Parallel()
	input := `{"parkCode":"P 1/ä?","n":1.10,"b":true,"z":"","ctl":"a\r\nX: y\u0000%\t","dots":"..","o":{"a":[1]},"q":"\"","nul":null}`
	for _, c := range []struct {
		src    string
		escape Escape
		want   string
		err    string
	}{
		{`/lots/\(.parkCode)/events`, EscapeURL, `/lots/P%201%2F%C3%A4%3F/events`, ""},
		{`/a?n=\(.n)&b=\(.b)&z=\(.z)`, EscapeURL, `/a?n=1.10&b=true&z=`, ""},
		{`/a?up=\(.dots)`, EscapeURL, `/a?up=..`, ""},
		{`/a/x\(.dots)`, EscapeURL, `/a/x..`, ""},
		{`/a/\(.dots)/x`, EscapeURL, "", `could lead elsewhere`},
		{`/a/.\("." + .z)`, EscapeURL, "", `could lead elsewhere`},
		{`/fixed/../x`, EscapeURL, "/fixed/../x", ""},
		{`-_.~\("-_.~")`, EscapeURL, `-_.~-_.~`, ""},
		{`\(.ctl)`, EscapeHeader, "a%0D%0AX: y%00%\t", ""},
		{`\(.parkCode)`, EscapeHeader, "P 1/ä?", ""},
		{`say "\(.q)" \\ é`, EscapeHeader, `say """ \ é`, ""},
		{`\" \u00e9`, EscapeHeader, `" é`, ""},
		{`\([.o.a[] | "(\(.))"] | join(")"))`, EscapeHeader, `(1)`, ""},
		{`\( # a comment )
		.n)`, EscapeHeader, `1.10`, ""},
		{`plain`, EscapeHeader, `plain`, ""},
		{``, EscapeHeader, ``, ""},
		{`x\(.nul)`, EscapeURL, "", `\(.nul): null is neither text, number nor boolean`},
		{`x\(.o)`, EscapeURL, "", `\(.o): an object is neither`},
		{`x\(.o.a)`, EscapeURL, "", `\(.o.a): an array is neither`},
		{`x\(empty)`, EscapeURL, "", `\(empty): jq: the program yields no value`},
		{`x\(1,2)`, EscapeURL, "", `\(1,2): jq: the program yields more than one`},
		{`x\(.n | keys)`, EscapeURL, "", `\(.n | keys): jq: `},
	} {
		tpl, err := CompileTemplate(c.src, c.escape)
		if err != nil {
			t.Errorf("%s: %v", c.src, err)
			continue
		}
		got, err := tpl.Expand(t.Context(), value(t, input), nil)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %q, %v; want %q, %s", c.src, got, err, c.want, c.err)
		}
	}
}

func TestTemplateErrors(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		`/a/\(.x`:              `1:4: \( without its closing parenthesis`,
		`/a/\("x)`:             `1:4: \( without its closing parenthesis`,
		`/a/\()`:               `1:4: \() is empty`,
		`/é/\(.x | ]) `:        `1:11: unexpected token "]"`,
		`/é/\(.x) \(nope)`:     `1:12: function not defined: nope/0`,
		"/a/\\(\n.x\n | nope)": `3:4: function not defined: nope/0`,
		"a\n\\(.x)\\(nope)":    `2:8: function not defined: nope/0`,
		`a "b" \q`:             `1:7: invalid escape sequence`,
		`\`:                    `1:1: a single backslash at the end`,
		`\(env.A)`:             `1:3: env: the environment`,
	} {
		_, err := CompileTemplate(src, EscapeURL)
		var fault *CompileError
		if !errors.As(err, &fault) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v; want %s", src, err, want)
		}
	}
}

func TestTemplateQuestions(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]struct {
		uses, vars bool
		prefix     string
		whole      bool
	}{
		`http://a/b`:         {false, false, "http://a/b", true},
		``:                   {false, false, "", true},
		`http://a/\(.x)`:     {true, false, "http://a/", false},
		`\($vars.x)/\($key)`: {false, true, "", false},
		`h\($topic)\(.y)`:    {true, false, "h", false},
	} {
		tpl, err := CompileTemplate(src, EscapeURL)
		if err != nil {
			t.Fatal(err)
		}
		prefix, whole := tpl.Prefix()
		if sample := tpl.Sample("x"); strings.Contains(sample, "(") || !strings.HasPrefix(sample, prefix) {
			t.Errorf("%s: sample %q", src, sample)
		}
		if tpl.UsesInput() != want.uses || tpl.Uses("vars") != want.vars || prefix != want.prefix || whole != want.whole {
			t.Errorf("%s: %v %v %q %v", src, tpl.UsesInput(), tpl.Uses("vars"), prefix, whole)
		}
	}
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{`/lots/\(.x)/e`, `a "b" \\ \("\(.x)")`, `\(`, `\(#)`, "\\(# \\\r\n)", `\u00e9`, `\`, `\("`, `)`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		tpl, err := CompileTemplate(src, EscapeHeader)
		if err != nil {
			var fault *CompileError
			if !errors.As(err, &fault) || fault.Line < 1 || fault.Column < 1 {
				t.Fatalf("%q: %v", src, err)
			}
			return
		}
		tpl.UsesInput()
	})
}
