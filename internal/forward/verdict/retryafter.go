package verdict

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// retryAfter returns how long the destination asks to wait (0 included), and whether it validly asks at all: seconds
// without sign or fraction, or an HTTP date, one in the past meaning 0. Of several valid ones the longest counts, so
// that none is undercut. A date is measured from the answer's own Date, so that clocks need not agree.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	var longest time.Duration
	asked := false
	for _, value := range h.Values("Retry-After") {
		if wait, ok := parseRetryAfter(strings.Trim(value, " \t"), now); ok {
			longest, asked = max(longest, wait), true
		}
	}
	return longest, asked
}

func parseRetryAfter(value string, now time.Time) (time.Duration, bool) {
	if value == "" {
		return 0, false
	}
	if strings.Trim(value, "0123456789") != "" {
		at, err := http.ParseTime(value)
		return max(at.Sub(now), 0), err == nil
	}
	var seconds time.Duration
	for _, digit := range []byte(value) {
		seconds = seconds*10 + time.Duration(digit-'0')
		if seconds > math.MaxInt64/time.Second {
			return math.MaxInt64, true // longer than a Duration can say: the cap decides
		}
	}
	return seconds * time.Second, true
}
