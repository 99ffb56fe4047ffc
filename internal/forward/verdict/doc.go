// Package verdict judges what came of a request: by the route's rules in order, else by `otherwise`, else by the table
// of Auto. What it returns is clean: valid UTF-8 without NUL, within the sizes that the database keeps. That is not a
// nicety: one error text with a NUL stops a whole process from completing jobs.
package verdict
