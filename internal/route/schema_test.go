package route_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ferry-forward/ferry/internal/route"
)

const (
	schemaPath      = "../../deploy/schema/routes.schema.json"
	casesSchemaPath = "../../deploy/schema/tests.schema.json"
)

func TestSchemasAreCurrent(t *testing.T) {
	t.Parallel()
	for path, want := range map[string][]byte{schemaPath: route.Schema(), casesSchemaPath: route.CasesSchema()} {
		committed, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(committed, want) {
			t.Errorf("%s is not what the fields say; run go generate ./internal/route", path)
		}
	}
}

func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	return compiled(t, route.Schema())
}

func compiled(t *testing.T, text []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("it.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("it.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// instance reads a YAML file as an editor would before it checks it against the schema.
func instance(t *testing.T, path string) (any, error) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := yaml.Unmarshal(data, &v); err != nil {
		return nil, err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(b))
}

func TestSchemaTakesGoodFiles(t *testing.T) {
	t.Parallel()
	s := compiledSchema(t)
	for _, path := range append(files(t, "good"), "../../examples/parking/routes.yaml") {
		v, err := instance(t, path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if err := s.Validate(v); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// beyondSchema are faults that a JSON Schema can't see: what a program, a URL or a name means, what depends on other fields, on
// the environment or on how the YAML is written.
var beyondSchema = []string{
	"body-", "contradict", "duplicate-", "filter-env", "filter-input", "dead-letter-loop", "header-", "idempotency-header", "key-", "name-too-long", "rate-limit-", "reference-", "url-", "two-documents",
	"forward-headers", "crlf", "decode-wire-header", "filter-empty", "later-features", "rules", "topics-regex", "topics-regex-reference", "two-documents", "unknown-alias", "yaml-tag",
}

func TestSchemaRefusesBadFiles(t *testing.T) {
	t.Parallel()
	s := compiledSchema(t)
	refused := 0
	for _, path := range files(t, "bad") {
		if strings.HasPrefix(filepath.Base(path), "anchors-") {
			continue // would take the YAML library half a minute to decode
		}
		v, err := instance(t, path)
		if err != nil {
			continue // no YAML, or none that can be decoded
		}
		err = s.Validate(v)
		if err != nil {
			refused++
			continue
		}
		name := filepath.Base(path)
		beyond := false
		for _, prefix := range beyondSchema {
			beyond = beyond || strings.HasPrefix(name, prefix)
		}
		if !beyond {
			t.Errorf("%s passes the schema", name)
		}
	}
	if refused < 30 {
		t.Errorf("only %d bad files are refused by the schema", refused)
	}
}
