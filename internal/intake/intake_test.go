package intake_test

import (
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/intake"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

// What a record holds decides on its key and on the filter, and never makes it fail.
func TestFor(t *testing.T) {
	t.Parallel()
	const position = "00000000-0000-0000-0000-000000000000/3/42"
	for name, c := range map[string]struct {
		fields, value string
		key           string
		result        message.IngestResult
		filterErr     string
		keyErr        string
	}{
		"key":                 {"message_key: .id", `{"id":"a"}`, "a", message.IngestStored, "", ""},
		"number":              {"message_key: .id", `{"id":1.10}`, "1.10", message.IngestStored, "", ""},
		"long key":            {"message_key: .id", `{"id":"` + strings.Repeat("x", 600) + `"}`, message.NormalizeKey(strings.Repeat("x", 600)), message.IngestStored, "", ""},
		"none wanted":         {"", `{`, position, message.IngestStored, "", ""},
		"null":                {"message_key: .id", `{}`, position, message.IngestStored, "", "yields neither"},
		"empty":               {"message_key: .id", `{"id":""}`, position, message.IngestStored, "", "yields neither"},
		"two":                 {"message_key: '.a, .b'", `{}`, position, message.IngestStored, "", "more than one value"},
		"no JSON":             {"message_key: .id", `{`, position, message.IngestStored, "", "JSON ends too early"},
		"of the record alone": {"message_key: '$topic'", `{`, "t", message.IngestStored, "", ""},
		"taken":               {"filter: .a", `{"a":0}`, position, message.IngestStored, "", ""},
		"filtered":            {"filter: .a\nmessage_key: .id", `{"a":false,"id":"x"}`, position, message.IngestFiltered, "", ""},
		"filter fails":        {"filter: .a.b\nmessage_key: .id", `{"a":1,"id":"x"}`, "x", message.IngestStored, "expected an object", ""},
		"both fail":           {"filter: .a\nmessage_key: .id", `nonsense`, position, message.IngestStored, "invalid JSON", "invalid JSON"},
		"tombstone":           {"filter: error\nmessage_key: error", "", position, message.IngestTombstone, "", ""},
		"tombstone, sent":     {"tombstones: forward\nfilter: . == null\nmessage_key: '$key'", "", "k", message.IngestStored, "", ""},
	} {
		text := "version: 1\nroutes:\n  - name: r\n    topics: [t]\n    request: {url: http://localhost/}\n    " + strings.ReplaceAll(c.fields, "\n", "\n    ") + "\n"
		f, err := route.Parse("routes.yaml", []byte(text), func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r := &message.Record{Key: []byte("k")}
		r.Topic, r.Partition, r.Offset = "t", 3, 42
		if c.value != "" {
			r.Value = []byte(c.value)
		}
		in := intake.New(r)
		for range 2 { // the second time with what is decoded already
			o := in.For(t.Context(), f.Route("r"))
			if o.Key != c.key || o.Result != c.result || !says(o.FilterErr, c.filterErr) || !says(o.KeyErr, c.keyErr) {
				t.Errorf("%s: %+v", name, o)
			}
		}
	}
}

func says(err error, want string) bool {
	if err == nil || want == "" {
		return err == nil && want == ""
	}
	return strings.Contains(err.Error(), want)
}
