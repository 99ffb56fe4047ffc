package config

import (
	"fmt"
	"io"
	"strings"
)

// WriteHelp prints the settings of a struct of this package for `help env`.
func WriteHelp(w io.Writer, spec any) error {
	var b strings.Builder
	for _, s := range Describe(spec) {
		fmt.Fprintf(&b, "%s\n    %s\n", s.Name, facts(s))
		for _, line := range wrap(s.Desc, 100) {
			b.WriteString("    " + line + "\n")
		}
		b.WriteByte('\n')
	}
	b.WriteString(hint() + "\n")
	_, err := io.WriteString(w, b.String())
	if err != nil {
		return fmt.Errorf("printing the settings: %w", err)
	}
	return nil
}

// facts is type, default and limits in one line.
func facts(s Setting) string {
	parts := []string{s.Type}
	switch {
	case s.Required:
		parts = append(parts, "required")
	case s.Default != "":
		parts = append(parts, "default "+s.Default)
	default:
		parts = append(parts, "default: none")
	}
	if s.Limits != "" {
		parts = append(parts, s.Limits)
	}
	return strings.Join(parts, "; ")
}

func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

const markdownHead = `# Settings

<!-- Generated from internal/config by ` + "`go generate ./internal/config`" + `; change it there. -->

Both binaries read their settings from the environment. All of them are checked before anything starts: each fault is one
line on stderr, and the exit code is 2 (1 from ` + "`check`" + `). ` + "`ingester help env` and `forwarder help env`" + ` print this
page's text, ` + "`ingester check` and `forwarder check`" + ` the values that would be used, secrets masked.

A variable that is set to nothing counts as not set. A variable that begins with FERRY_ and is no setting is warned
about, except FERRY_TEST_* and FERRY_DEMO_*, names that the route file uses, and what Kubernetes sets for Services.
What to send where is said in the route file.
`

// WriteMarkdown writes docs/settings.md.
func WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(markdownHead)
	common := Describe(Common{})
	markdownTable(&b, "Both binaries", common)
	markdownTable(&b, "ingester", Describe(Ingester{})[len(common):])
	markdownTable(&b, "forwarder", Describe(Forwarder{})[len(common):])
	_, err := io.WriteString(w, b.String())
	if err != nil {
		return fmt.Errorf("writing the settings page: %w", err)
	}
	return nil
}

func markdownTable(b *strings.Builder, title string, settings []Setting) {
	fmt.Fprintf(b, "\n## %s\n\n| name | default | allowed | meaning |\n|---|---|---|---|\n", title)
	for _, s := range settings {
		def := "none"
		switch {
		case s.Required:
			def = "**required**"
		case s.Default != "":
			def = "`" + s.Default + "`"
		}
		allowed := s.Type
		if s.Limits != "" {
			allowed += ": " + s.Limits
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", s.Name, def, cell(allowed), cell(s.Desc))
	}
}

// cell escapes what would end a table cell or disappear as HTML.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", `\,`, `\\,`).Replace(s)
}
