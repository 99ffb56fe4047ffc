package verdict

import (
	"unicode/utf8"

	"github.com/ferry-forward/ferry/internal/message"
)

// The sizes of what is kept of an attempt, in bytes.
const (
	MaxError     = 1 << 10
	MaxResponse  = 1 << 10
	MaxDetail    = 1 << 10
	MaxErrorCode = 64
)

// excerpt is the beginning of a body, clean. A rune that the first cut splits is past what the second one keeps.
func excerpt(body []byte) string {
	return message.Clean(string(body[:min(len(body), MaxResponse+utf8.UTFMax)]), MaxResponse)
}
