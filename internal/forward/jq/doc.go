// Package jq runs the jq programs and string templates of the route file, on itchyny/gojq.
//
// What differs from the jq command: numbers that pass through unchanged keep their text (1.10, 1e2, 20 digits), while
// arithmetic works on integers of any size and on float64; object keys come out sorted; there is no environment, no
// file, no module and no further input (refused when the program is compiled). Every run has a time limit and a bounded
// number of values, and a panic of the interpreter is an error.
//
// The values that go in are those that package decode makes: nil, bool, string, json.Number, []any and map[string]any
// of these; int, float64 and *big.Int are welcome too. Any other type is an error when it is looked at. Programs never
// change their input, so one input may be shared by programs that run at the same time.
package jq
