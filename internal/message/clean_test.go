package message

import (
	"strings"
	"testing"
	"unicode/utf8"
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
		{"plain", 3, "pla"},
		{"粤粤粤", 7, "粤粤"},
		{"a\x00b", 10, "a\uFFFDb"},
		{"a\xffb", 10, "a\uFFFDb"},
		{"a\uFFFDb", 10, "a\uFFFDb"},
		{strings.Repeat("\x00", 1024), 1024, strings.Repeat("\uFFFD", 341)},
		{strings.Repeat("\xff", 5), 4, "\uFFFD"},
		{"abc", 0, ""},
	} {
		if got := Clean(c.in, c.limit); got != c.want {
			t.Errorf("Clean(%q, %d) = %q, want %q", c.in, c.limit, got, c.want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add(strings.Repeat("\x00", 1024), 1024)
	f.Add("a\xf0\x9f\x98", 3)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = max(0, limit)
		got := Clean(s, limit)
		if len(got) > limit || !utf8.ValidString(got) || strings.ContainsRune(got, 0) {
			t.Fatalf("Clean(%q, %d) = %q", s, limit, got)
		}
		if utf8.ValidString(s) && !strings.ContainsRune(s, 0) && !strings.HasPrefix(s, got) {
			t.Fatalf("Clean(%q, %d) = %q is no beginning of it", s, limit, got)
		}
	})
}
