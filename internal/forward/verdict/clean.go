package verdict

import (
	"strings"
	"unicode/utf8"
)

// The sizes of what is kept of an attempt, in bytes.
const (
	MaxError     = 1 << 10
	MaxResponse  = 1 << 10
	MaxDetail    = 1 << 10
	MaxErrorCode = 64
)

// Clean returns at most limit bytes of s as valid UTF-8: NUL and bytes that are not UTF-8 become U+FFFD, and the cut is
// between two characters. It looks at no more of s than it keeps.
func Clean[T ~string | ~[]byte](s T, limit int) string {
	var out strings.Builder
	out.Grow(min(len(s), limit))
	var window [utf8.UTFMax]byte
	for i := 0; i < len(s); {
		n := copy(window[:], s[i:])
		r, size := utf8.DecodeRune(window[:n])
		if r == 0 {
			r = utf8.RuneError
		}
		if out.Len()+utf8.RuneLen(r) > limit {
			break
		}
		out.WriteRune(r)
		i += size
	}
	return out.String()
}
