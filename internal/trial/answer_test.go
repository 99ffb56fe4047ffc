package trial_test

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/trial"
)

func zipped(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// An answer is judged as if it had come over the wire, however it is written down.
func TestAnswers(t *testing.T) {
	t.Parallel()
	g := newRig(t, "version: 1\nroutes:\n  - name: r\n    topics: [t]\n    http: {max_response_bytes: 100}\n    request: {url: http://localhost/}\n"+
		"    response: {rules: [{when: '.body.ok and .headers.x == \"1, 2\"', then: delivered}, {when: '.error == \"too_large\"', then: hold}], otherwise: reject}\n", nil)
	for name, c := range map[string]struct {
		text  string
		want  message.Verdict
		error string
	}{
		"raw":               {"HTTP/1.1 200 OK\r\nX: 1\r\nx: 2\r\n\r\n{\"ok\":true}", message.Delivered, ""},
		"line feeds":        {"HTTP/1.1 200 OK\nX: 1\nX: 2\n\n{\"ok\":true}\n", message.Delivered, ""},
		"HTTP/2":            {"HTTP/2 200 \nx: 1\nx: 2\n\n{\"ok\":true}", message.Delivered, ""},
		"after continue":    {"HTTP/1.1 100 Continue\n\nHTTP/1.1 200 OK\nX: 1\nX: 2\n\n{\"ok\":true}", message.Delivered, ""},
		"length is ignored": {"HTTP/1.1 200 OK\nContent-Length: 3\nTransfer-Encoding: chunked\nX: 1\nX: 2\n\n{\"ok\":true}", message.Delivered, ""},
		"gzip":              {"HTTP/1.1 200 OK\nContent-Encoding: gzip\nX: 1\nX: 2\n\n" + zipped(t, `{"ok":true}`), message.Delivered, ""},
		"gzip undone":       {"HTTP/1.1 200 OK\nContent-Encoding: gzip\nX: 1\nX: 2\n\n{\"ok\":true}", message.Delivered, ""},
		"no body":           {"HTTP/1.1 204 No Content\n\n", message.Retry, ""},
		"no empty line":     {"HTTP/1.1 204", message.Retry, ""},
		"too long":          {"HTTP/1.1 200 OK\n\n" + strings.Repeat("x", 101), message.Hold, "too_large: the body is longer than http.max_response_bytes"},
		"YAML":              {"status: 200\nheaders: {X: [1, 2]}\nbody: {ok: true}", message.Delivered, ""},
		"JSON":              {`{"status": 200, "headers": {"x": ["1", "2"]}, "body": "{\"ok\":true}"}`, message.Delivered, ""},
		"broken off":        {"{status: 200, headers: {X: [1, 2]}, body: {ok: true}, error: incomplete}", message.Reject, "incomplete: as given"},
		"not reached":       {"error: connect", message.Hold, "connect: as given"},
		"not answered":      {"error: reset", message.Reject, "reset: as given"},
		"redirect":          {"{status: 302, headers: {Location: 'https://x/y?token=z'}}", message.Retry, "redirect to https://x/y"},
	} {
		a, err := trial.ParseAnswer("answer", []byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		m := g.Record(t.Context(), record(`{}`))
		if j := g.Judge(t.Context(), m, g.Response(a)); j.Verdict != c.want || j.Error != c.error {
			t.Errorf("%s: %s, %q", name, j.Verdict, j.Error)
		}
	}
}
