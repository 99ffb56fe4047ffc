package app

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
)

// IsTerminal says whether what is written to w, or read from it, is a person's.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// Confirm asks a question and says whether the answer is yes.
func Confirm(in io.Reader, out io.Writer, question string) bool {
	_, _ = fmt.Fprint(out, question+" [y/N] ")
	answer, _ := bufio.NewReader(in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true
	}
	return false
}

// WhenForms are the forms that When reads, for help and errors.
const WhenForms = "a time ago such as 90s, 45m, 2h or 7d, or a time such as 2026-12-03, 2026-12-03T10:15 or 2026-12-03T10:15:30Z (without a zone: local time)"

// When reads the value of a flag that says a time: how long before now, or when. An empty one is the zero time.
func When(flag, value string, now time.Time) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	if d, err := Span(value); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339Nano, value); err == nil {
		return t, nil
	}
	for _, layout := range []string{
		"2006-01-02", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999",
	} {
		if t, err := time.ParseInLocation(layout, value, time.Local); err == nil { //nolint:gosmopolitan // what a person means
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%s: %q is not a time; give %s", flag, value, WhenForms)
}

// Span reads a duration in Go's form, or in days: 7d.
func Span(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		if err != nil || n < 0 || n > 36500 {
			return 0, fmt.Errorf("%q is not a number of days", s)
		}
		return time.Duration(n * 24 * float64(time.Hour)), nil
	}
	return time.ParseDuration(s)
}
