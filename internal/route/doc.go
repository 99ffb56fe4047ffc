// Package route reads routes.yaml, the one file that says what goes where: it parses it strictly, fills in defaults,
// compiles every jq program, and reports all faults at once, each with its line and column and what to do about it.
//
// One table (fields.go) names every field with its type, limits, default and description. Parsing, `defaults`, the
// messages and the JSON Schema that editors use all come from it: a new field is one entry there.
//
// Values that ${…} stood for are secret: messages and summaries show the text as it stands in the file, never what it
// was expanded to.
package route
