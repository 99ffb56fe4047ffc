package route

import (
	"bytes"
	"encoding/json"
	"maps"
)

//go:generate go run ./genschema ../../deploy/schema

// Schema returns the JSON Schema of route files (draft 2020-12), indented and ending in a newline. It comes from the
// same table of fields as everything else.
func Schema() []byte {
	return schemaFile("routes", "Ferry routes", "What goes from which Kafka topics to which HTTP API, and how. See docs/routes.md.",
		objectSchema(topFields(), false))
}

// CasesSchema returns the JSON Schema of files of test cases.
func CasesSchema() []byte {
	return schemaFile("tests", "Ferry test cases", "What the routes of a route file are to make of records and of answers. See docs/commands/try.md.",
		objectSchema(casesFields(), false))
}

func schemaFile(name, title, description string, content schema) []byte {
	s := schema{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"$id":         "https://github.com/ferry-forward/ferry/blob/main/deploy/schema/" + name + ".schema.json",
		"title":       title,
		"description": description,
	}
	maps.Copy(s, content)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		panic(err) // the tables hold nothing that JSON can't
	}
	return b.Bytes()
}
