package verdict_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ferry-forward/ferry/internal/forward/verdict"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in    string
		limit int
		want  string
	}{
		{"", 10, ""},
		{"plain", 10, "plain"},
		{"exact", 5, "exact"},
		{"longer", 5, "longe"},
		{"a\x00b", 10, "a\uFFFDb"},
		{"a\xffb", 10, "a\uFFFDb"},
		{"粤粤粤", 8, "粤粤"},
		{"粤粤粤", 9, "粤粤粤"},
		{"粤", 2, ""},
		{"\x00", 2, ""},
		{"😀x", 4, "😀"},
		{"\xed\xa0\x80", 20, "\uFFFD\uFFFD\uFFFD"}, // a lone surrogate in UTF-8 clothes
		{"line\nbreak\ttab", 20, "line\nbreak\ttab"},
		{"abc", 0, ""},
	} {
		if got := verdict.Clean(c.in, c.limit); got != c.want {
			t.Errorf("%q cut to %d: %q, want %q", c.in, c.limit, got, c.want)
		}
		if got := verdict.Clean([]byte(c.in), c.limit); got != c.want {
			t.Errorf("bytes %q cut to %d: %q, want %q", c.in, c.limit, got, c.want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\x00\xff粤", 5)
	f.Add(strings.Repeat("\x00", 5000), 1024)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = max(0, min(limit, 1<<16))
		got := verdict.Clean(s, limit)
		if len(got) > limit || !utf8.ValidString(got) || strings.ContainsRune(got, 0) {
			t.Errorf("%q cut to %d: %q", s, limit, got)
		}
		if again := verdict.Clean(got, limit); again != got {
			t.Errorf("%q is not stable: %q", got, again)
		}
	})
}
