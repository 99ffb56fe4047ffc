package app

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/ferry-forward/ferry/internal/config"
	"github.com/ferry-forward/ferry/internal/route"
)

// Checked is what a check command found.
type Checked struct {
	Settings any         // loaded settings
	Routes   *route.File // nil: could not be read
	Err      error       // the faults of both
	Warnings []string    // what looks odd in the settings
	More     string      // what else is worth knowing when there are none
}

// WriteCheck says on out what would run, secrets masked, and on warnings what looks odd. Faults become a finding.
func WriteCheck(out, warnings io.Writer, c Checked) error {
	for _, line := range append(Warnings(c.Routes), c.Warnings...) {
		_, _ = fmt.Fprintln(warnings, "warning: "+line)
	}
	if c.Err != nil {
		return Finding(c.Err)
	}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, s := range config.Values(c.Settings) {
		value := s.Value
		if value == "" {
			value = "(not set)"
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\n", s.Name, value)
	}
	_ = table.Flush() // a strings.Builder takes everything
	b.WriteByte('\n')
	_ = c.Routes.Summary(&b)
	b.WriteString(c.More)
	if _, err := io.WriteString(out, b.String()); err != nil {
		return Unknown(fmt.Errorf("printing: %w", err))
	}
	return nil
}
