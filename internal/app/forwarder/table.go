package forwarder

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/ferry-forward/ferry/internal/app"
)

// table is a table for people. Numbers get thousands separators.
type table struct {
	right []bool // aligned right, by column
	rows  [][]string
}

// newTable begins a table. A head with > before it stands over numbers, which are aligned right.
func newTable(heads ...string) *table {
	t := &table{right: make([]bool, len(heads))}
	for i, h := range heads {
		heads[i], t.right[i] = strings.CutPrefix(h, ">")
	}
	t.rows = [][]string{heads}
	return t
}

// add adds a row of strings and int64s.
func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		switch c := c.(type) {
		case int64:
			row[i] = app.Thousands(c)
		case string:
			row[i] = c
		}
	}
	t.rows = append(t.rows, row)
}

// write writes an empty line and the table; nothing, if it has no rows.
func (t *table) write(w io.StringWriter) {
	if len(t.rows) == 1 {
		return
	}
	widths := make([]int, len(t.right))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	_, _ = w.WriteString("\n")
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if t.right[i] {
				cell, pad = pad+cell, ""
			}
			line.WriteString(cell + pad + "  ")
		}
		_, _ = w.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}
