package route_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/ferry-forward/ferry/internal/route"
)

// Every field says what it is for, and every one of this version is in docs/routes.md.
func TestFieldsAreDescribed(t *testing.T) {
	t.Parallel()
	var doc map[string]any
	if err := json.Unmarshal(route.Schema(), &doc); err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../docs/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	var walk func(path string, v map[string]any)
	walk = func(path string, v map[string]any) {
		properties, _ := v["properties"].(map[string]any)
		for name, p := range properties {
			field, _ := p.(map[string]any)
			if d, _ := field["description"].(string); d == "" && path != "" {
				t.Errorf("%s.%s has no description", path, name)
			}
			if !bytes.Contains(docs, []byte("`"+name+"`")) && !bytes.Contains(docs, []byte("."+name+"`")) {
				t.Errorf("docs/routes.md does not name %s.%s", path, name)
			}
			walk(path+"."+name, field)
			if items, ok := field["items"].(map[string]any); ok {
				walk(path+"."+name, items)
			}
		}
	}
	walk("", doc)
}
