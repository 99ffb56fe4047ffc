package message

import (
	"strings"
	"unicode/utf8"
)

// Clean makes text from elsewhere safe to store: valid UTF-8, without NUL, at most limit bytes, cut between runes.
func Clean(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
		for i := 0; i < utf8.UTFMax && len(s) > 0; i++ {
			if r, size := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || size != 1 {
				break
			}
			s = s[:len(s)-1]
		}
	}
	if utf8.ValidString(s) && !strings.ContainsRune(s, 0) {
		return s
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	if len(s) > limit { // a replacement is longer than what it replaces
		return Clean(s[:limit], limit)
	}
	return s
}
