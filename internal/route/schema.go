package route

import (
	"bytes"
	"encoding/json"
	"maps"
)

//go:generate go run ./genschema ../../deploy/schema/routes.schema.json

// Schema returns the JSON Schema of route files (draft 2020-12), indented and ending in a newline. It comes from the
// same table of fields as everything else.
func Schema() []byte {
	s := schema{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"$id":         "https://github.com/ferry-forward/ferry/blob/main/deploy/schema/routes.schema.json",
		"title":       "Ferry routes",
		"description": "What goes from which Kafka topics to which HTTP API, and how. See docs/routes.md.",
	}
	maps.Copy(s, objectSchema(topFields(), false))
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		panic(err) // the table holds nothing that JSON can't
	}
	return b.Bytes()
}
