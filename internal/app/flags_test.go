package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/app"
)

func TestWhen(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 3, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Time{
		"":                          {},
		"2h":                        now.Add(-2 * time.Hour),
		"7d":                        now.Add(-7 * 24 * time.Hour),
		"1.5d":                      now.Add(-36 * time.Hour),
		"90s":                       now.Add(-90 * time.Second),
		"0s":                        now,
		"2026-12-01T10:00:00Z":      time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC),
		"2026-12-01T10:00:00+02:00": time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC),
		"2026-12-01T10:00:00.25Z":   time.Date(2026, 12, 1, 10, 0, 0, 250e6, time.UTC),
		"2026-12-01":                time.Date(2026, 12, 1, 0, 0, 0, 0, time.Local),    //nolint:gosmopolitan // as a person means it
		"2026-12-01T10:15":          time.Date(2026, 12, 1, 10, 15, 0, 0, time.Local),  //nolint:gosmopolitan // as a person means it
		"2026-12-01 10:15:30":       time.Date(2026, 12, 1, 10, 15, 30, 0, time.Local), //nolint:gosmopolitan // as a person means it
	} {
		if got, err := app.When("--since", in, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"yesterday", "-2h", "2 h", "d", "-1d", "2026-13-01", "12:00", "1e9d"} {
		_, err := app.When("--since", in, now)
		if err == nil || !strings.Contains(err.Error(), "--since") || !strings.Contains(err.Error(), app.WhenForms) {
			t.Errorf("%q: %v, want an error with the flag and the forms", in, err)
		}
	}
}

func TestConfirm(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{"y\n": true, "Yes\n": true, " y ": true, "n\n": false, "\n": false, "": false, "yo\n": false} {
		var out strings.Builder
		if got := app.Confirm(strings.NewReader(in), &out, "Replay 3 messages?"); got != want {
			t.Errorf("%q: %t", in, got)
		}
		if out.String() != "Replay 3 messages? [y/N] " {
			t.Errorf("asked %q", out.String())
		}
	}
	if app.IsTerminal(strings.NewReader("")) {
		t.Error("a reader is no terminal")
	}
}
