package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

// What processes tell about themselves: metrics, readiness, log.

// metric returns the value of a series as it stands in a process's metrics; "" when it is not there.
func metric(p *proctest.Proc, series string) string {
	_, text := get(admin(p) + "/metrics")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// ready waits until a process's /readyz has the code and holds the text.
func ready(t *testing.T, p *proctest.Proc, code int, text string) {
	t.Helper()
	url := admin(p) + "/readyz"
	proctest.Eventually(t, patience, func() error {
		if got, body := get(url); got != code || !strings.Contains(body, text) {
			return fmt.Errorf("readyz %d: %s; want %d and %q", got, body, code, text)
		}
		return nil
	})
}

// logLines returns the lines of a level that hold the text.
func logLines(p *proctest.Proc, level, text string) []string {
	var found []string
	for line := range strings.Lines(p.Log()) {
		var entry struct{ Level, Message string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Level == level && strings.Contains(entry.Message, text) {
			found = append(found, line)
		}
	}
	return found
}
