package forwarder

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// visible makes one line of a text from elsewhere, and shows its control characters, with which it could change what the
// terminal shows of others.
func visible(s string) string { return visibleBut(s, "") }

// visibleLines leaves line feeds and tabs as they are.
func visibleLines(s string) string { return visibleBut(s, "\n\t") }

func visibleBut(s, kept string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case strings.ContainsRune(kept, r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			_, _ = fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r) && r != '\u200d', r == '\u2028', r == '\u2029':
			_, _ = fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// shorten cuts a text to n characters.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
