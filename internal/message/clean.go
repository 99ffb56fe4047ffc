package message

import (
	"strings"
	"unicode/utf8"
)

// Clean makes text from elsewhere safe to store: valid UTF-8, without NUL, at most limit bytes, cut between runes. What
// is not so becomes U+FFFD. It looks at no more of s than it keeps.
func Clean(s string, limit int) string {
	if len(s) <= limit && utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	var out strings.Builder
	out.Grow(min(len(s), limit))
	for _, r := range s { // an invalid byte comes as U+FFFD
		if r == 0 {
			r = utf8.RuneError
		}
		if out.Len()+utf8.RuneLen(r) > limit {
			break
		}
		out.WriteRune(r)
	}
	return out.String()
}
