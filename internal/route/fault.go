package route

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing that is wrong in a route file.
type Fault struct {
	File         string
	Line, Column int    // from 1, columns in characters; 0: what it is about stands nowhere in the file
	Field        string // such as routes[vehicle-event].request.body; empty for the file as a whole
	Message      string // what is wrong, and what to do
}

// Place returns file:line:column, or the file alone when it is about no place in it.
func (f Fault) Place() string {
	if f.Line == 0 {
		return f.File
	}
	return fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column)
}

// Error returns file:line:column: field: message.
func (f Fault) Error() string {
	s := f.Place() + ": "
	if f.Field != "" {
		s += f.Field + ": "
	}
	return s + f.Message
}

// Faults is everything that is wrong in a route file, in the order of the file.
type Faults []Fault

// Error returns one line for each fault.
func (f Faults) Error() string { return strings.Join(f.Faults(), "\n") }

// Faults returns the lines.
func (f Faults) Faults() []string {
	lines := make([]string, 0, len(f))
	for _, fault := range f {
		lines = append(lines, fault.Error())
	}
	return lines
}

// sorted returns the faults in the order of the file, each once.
func (f Faults) sorted() Faults {
	slices.SortStableFunc(f, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.Compact(f)
}

// nearest returns the candidate that is at most a third of its length away from name in edits, or none.
func nearest(name string, candidates []string) string {
	best, bestEdits := "", 0
	for _, c := range candidates {
		limit := max(1, len(c)/3)
		if e := edits(name, c); e <= limit && (best == "" || e < bestEdits) {
			best, bestEdits = c, e
		}
	}
	return best
}

// edits is the number of insertions, deletions and changes that make a into b.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
