package forward_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

// What has no body program goes out byte for byte, at each attempt.
func TestPassthrough(t *testing.T) {
	t.Parallel()
	g := newRig(t, "")
	for name, value := range map[string]string{
		"escaped NUL": `{"a":"x\u0000y"}`, "spaces": "{ \"a\" : 1.10 }\n", "big": `{"n":12345678901234567890}`, "html": `{"a":"<&>"}`,
		"not JSON": "no JSON at all", "binary": "\x00\x01\xff\xfe", "empty": "", "nested": strings.Repeat("[", 20_000),
		"5 MiB": strings.Repeat("x", 5<<20), "wire header": "\x00\x00\x00\x00\x07{}",
	} {
		for range 2 {
			if got := g.send(value); got.Status != message.StatusDelivered || got.Attempt.HTTPStatus != 200 {
				t.Errorf("%s: %+v", name, got)
			}
			req := g.last(t)
			if string(req.Body) != value || req.Length != int64(len(value)) {
				t.Errorf("%s: %.40q of length %d", name, req.Body, req.Length)
			}
		}
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	const deep = "request: {url: URL/in, body: '.a'}"
	for name, c := range map[string]struct {
		route, value string
		body, path   string
		headers      map[string]string // a value of "-": not there
	}{
		"defaults": {"", `{}`, `{}`, "/in", map[string]string{
			"Content-Type": "application/json", "User-Agent": "ferry/1.2.3", "Idempotency-Key": "r/k-1", "Accept-Encoding": "gzip",
		}},
		"numbers as written": {
			"request: {url: URL/in, body: '{a, b, c, d}'}",
			`{"a":1.10,"b":1e2,"c":12345678901234567890,"d":9007199254740993}`,
			`{"a":1.10,"b":1e2,"c":12345678901234567890,"d":9007199254740993}`, "/in", nil,
		},
		"no HTML escapes": {deep, `{"a":"<>&"}`, `"<>&"`, "/in", nil},
		"escaped NUL":     {deep, `{"a":"x\u0000y"}`, `"x\u0000y"`, "/in", nil},
		"null body":       {deep, `{}`, `null`, "/in", nil},
		"url and headers": {
			`request: {url: 'URL/lots/\(.park)/events?key=\($key)', headers: {X-Park: '\(.park)', Content-Type: text/x, User-Agent: mine}}`,
			`{"park":"a/b 粤"}`, `{"park":"a/b 粤"}`, "/lots/a%2Fb%20%E7%B2%A4/events",
			map[string]string{
				"X-Park": "a/b 粤", "Content-Type": "text/x", "User-Agent": "mine",
			},
		},
		"control bytes in a header": {
			`request: {url: URL/in, headers: {X-A: '\(.a)'}}`, `{"a":"x\u0002\r\ny\u0000"}`,
			`{"a":"x\u0002\r\ny\u0000"}`, "/in",
			map[string]string{"X-A": "x%02%0D%0Ay%00"},
		},
		"text":  {"decode: text\nrequest: {url: URL/in}", "hello", "hello", "/in", map[string]string{"Content-Type": "text/plain; charset=utf-8"}},
		"bytes": {"decode: bytes\nrequest: {url: URL/in}", "\xff", "\xff", "/in", map[string]string{"Content-Type": "application/octet-stream"}},
		"bytes, mapped": {
			"decode: bytes\nrequest: {url: URL/in, body: '{data: .}'}", "\xff", `{"data":"/w=="}`, "/in",
			map[string]string{"Content-Type": "application/json"},
		},
		"another key header": {
			"request: {url: URL/in, idempotency_header: X-Request-Id}", "{}", "{}", "/in",
			map[string]string{"X-Request-Id": "r/k-1", "Idempotency-Key": "-"},
		},
		"nothing is sent with GET": {`request: {method: GET, url: 'URL/\(.id)'}`, `{"id":7}`, "", "/7", map[string]string{"Content-Type": "-"}},
		"but what is mapped":       {`request: {method: GET, url: URL/in, body: '{q: .id}'}`, `{"id":7}`, `{"q":7}`, "/in", nil},
		"variables":                {`request: {url: URL/in, body: '[$route, $message_key, $attempt, $topic, $partition, $offset]'}`, `{}`, `["r","k-1",1,"t",3,42]`, "/in", nil},
		"undecodable but not looked at": {
			`request: {url: 'URL/\($topic)', headers: {X-K: '\($message_key)'}}`, "\xff{", "\xff{", "/t",
			map[string]string{"X-K": "k-1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, c.route)
			m := record(c.value)
			m.Record.Key = []byte("a&b")
			if got := g.Deliver(context.Background(), m, due()); got.Status != message.StatusDelivered {
				t.Fatalf("%+v", got)
			}
			req := g.last(t)
			if string(req.Body) != c.body || req.RawPath != c.path {
				t.Errorf("%q to %s, want %q to %s", req.Body, req.RawPath, c.body, c.path)
			}
			for n, want := range c.headers {
				if got := header(req.Header, n); got != want && (want != "-" || got != "") {
					t.Errorf("%s: %q, want %q", n, got, want)
				}
			}
		})
	}
}

// Null and empty are told apart; what is null has no body.
func TestTombstones(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"tombstones: forward\nrequest: {url: URL/in}",
		"tombstones: forward\nrequest: {url: URL/in, body: '{a: .x}'}",
	} {
		g := newRig(t, text)
		m := record("")
		m.Value = nil
		if got := g.Deliver(context.Background(), m, due()); got.Status != message.StatusDelivered {
			t.Errorf("%+v", got)
		}
		if req := g.last(t); len(req.Body) != 0 || req.Length != 0 || req.Header.Get("Content-Type") != "" {
			t.Errorf("%+v", req)
		}
	}
	g := newRig(t, "request: {url: URL/in, body: '{a: .x}'}")
	if got := g.send(""); got.Reason != message.Undecodable {
		t.Errorf("an empty value is no null: %+v", got)
	}
}

// What can't be decoded or mapped fails without a request, and says which field and why.
func TestFailsWithoutARequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		route, value string
		reason       message.Reason
		says         string
	}{
		"not JSON":            {"request: {url: URL/in, body: .}", "no JSON", message.Undecodable, "byte 0"},
		"two documents":       {"request: {url: URL/in, body: .}", "{}{}", message.Undecodable, ""},
		"invalid UTF-8":       {"request: {url: URL/in, body: .}", "{\"a\":\"\xff\"}", message.Undecodable, "UTF-8"},
		"lone surrogate":      {"request: {url: URL/in, body: .}", `{"a":"\ud800"}`, message.Undecodable, ""},
		"nested":              {"request: {url: URL/in, body: .}", strings.Repeat("[", 20_000), message.Undecodable, ""},
		"wire header":         {"request: {url: URL/in, body: .}", "\x00\x00\x00\x00\x07{}", message.Undecodable, "wire header"},
		"read by the url":     {`request: {url: 'URL/\(.a)'}`, "x", message.Undecodable, ""},
		"read by a header":    {`request: {url: URL/in, headers: {X-A: '\(.a)'}}`, "x", message.Undecodable, ""},
		"no value":            {"request: {url: URL/in, body: empty}", "{}", message.Unmappable, "request.body: "},
		"two values":          {"request: {url: URL/in, body: '1, 2'}", "{}", message.Unmappable, "request.body: "},
		"error":               {"request: {url: URL/in, body: '.a.b'}", `{"a":1}`, message.Unmappable, "request.body: "},
		"too slow":            {"request: {url: URL/in, body: 'def f: f; f'}", `{}`, message.Unmappable, "time limit"},
		"null in the url":     {`request: {url: 'URL/\(.a)'}`, `{}`, message.Unmappable, "request.url: "},
		"dots in the url":     {`request: {url: 'URL/x/\(.a)'}`, `{"a":".."}`, message.Unmappable, "request.url: "},
		"object in a header":  {`request: {url: URL/in, headers: {X-A: '\(.)'}}`, `{}`, message.Unmappable, "request.headers.X-A: "},
		"hostile error text":  {"request: {url: URL/in, body: 'error(.a)'}", `{"a":"x\u0000` + strings.Repeat("粤", 2000) + `"}`, message.Unmappable, "x\uFFFD粤"},
		"secret in the error": {"vars: {s: hunter2-secret}\nrequest: {url: URL/in, body: 'error($vars.s)'}", `{}`, message.Unmappable, "***"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, c.route)
			got := g.send(c.value)
			if got.Status != message.StatusFailed || got.Reason != c.reason || got.Attempt != nil || got.Counted || got.Aborted {
				t.Errorf("%+v", got)
			}
			if !strings.Contains(got.Detail, c.says) || got.Detail == "" || len(got.Detail) > 1024 || strings.Contains(got.Detail, "hunter2") {
				t.Errorf("detail %q", got.Detail)
			}
			if g.Count() != 0 {
				t.Error("a request was made")
			}
		})
	}
}

// A process that stops, or stands still, fails no message for it.
func TestMappingWhileStopping(t *testing.T) {
	t.Parallel()
	g := newRig(t, "request: {url: URL/in, body: '{a}'}")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if got := g.Deliver(ctx, record(`{"a":1}`), due()); !got.Aborted || got.Status != message.StatusPending {
		t.Errorf("%+v", got)
	}
	if req, failure := g.Map(ctx, record(`{"a":1}`), 1); failure != nil || string(req.Body) != `{"a":1}` {
		t.Errorf("%+v, %v", req, failure)
	}
}

func TestForwardHeaders(t *testing.T) {
	t.Parallel()
	g := newRig(t, `request: {url: URL/in, forward_headers: ["x-*", "*-id", traceparent, "[hc]*", "?e"], headers: {X-Fixed: ours}}`)
	m := record("{}")
	for _, h := range []struct{ name, value string }{
		{"x-a", "1"},
		{"X-A", "2"},
		{"X-CONTROL", "a\x02b\r\nc"},
		{"x-binary", "\xff"},
		{"x-empty", ""},
		{"x-fixed", "theirs"},
		{"x bad", "1"},
		{"x-bad\n", "1"},
		{"", "1"},
		{"other", "1"},
		{"trace-id", "7"},
		{"TraceParent", "00-1"},
		{"Host", "evil"},
		{"content-length", "999"},
		{"Connection", "close"},
		{"TE", "trailers"},
		{"content-type", "text/x"},
	} {
		m.Headers = append(m.Headers, message.Header{Name: h.name, Value: []byte(h.value)})
	}
	m.Headers = append(m.Headers, message.Header{Name: "x-null"})
	if got := g.Deliver(context.Background(), m, due()); got.Status != message.StatusDelivered || g.Count() != 1 {
		t.Fatalf("%+v, %d requests", got, g.Count())
	}
	req := g.last(t)
	for name, want := range map[string]string{
		"X-A": "1|2", "X-Control": "a%02b%0D%0Ac", "X-Binary": "\xff", "X-Fixed": "ours", "Trace-Id": "7", "Traceparent": "00-1",
		"Other": "", "Te": "", "Content-Type": "text/x",
	} {
		if got := header(req.Header, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if values, ok := req.Header["X-Empty"]; !ok || values[0] != "" {
		t.Error("an empty value is no null")
	}
	for _, name := range []string{"X-Null", "X Bad", "X-Bad\n", "Connection"} {
		if _, there := req.Header[name]; there {
			t.Errorf("%s was sent", name)
		}
	}
	if string(req.Body) != "{}" {
		t.Errorf("%q", req.Body)
	}
}

// Nothing of a record can stand in for what Ferry says itself.
func TestOwnedHeaders(t *testing.T) {
	t.Parallel()
	g := newRig(t, `request: {url: URL/in, forward_headers: ["*"], idempotency_header: X-Once}`)
	m := record("{}")
	for _, name := range []string{
		"Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Proxy-Connection", "TE", "Trailer", "Upgrade", "x-once", "X-ONCE", "Expect", "Accept-Encoding", "HTTP2-Settings",
	} {
		m.Headers = append(m.Headers, message.Header{Name: name, Value: []byte("evil")})
	}
	if got := g.Deliver(context.Background(), m, due()); got.Status != message.StatusDelivered {
		t.Fatalf("%+v", got)
	}
	for name, values := range g.last(t).Header {
		if strings.Contains(strings.Join(values, ""), "evil") {
			t.Errorf("%s: %v", name, values)
		}
	}
}

// All attempts of a message carry the same key, and no byte of it breaks the header.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	g := newRig(t, "request: {url: URL/in, body: '{n: $attempt}'}")
	g.Always(g500())
	for _, key := range []string{"k", "a b%\r\nX: 1", "粤B12345", strings.Repeat("x", 512)} {
		m := record("{}")
		m.Key = key
		for attempt := range 4 {
			d := due()
			d.Attempts = attempt
			g.Deliver(context.Background(), m, d)
			req := g.last(t)
			if req.Key != key || req.Header.Get("X") != "" || string(req.Body) != `{"n":`+string(rune('1'+attempt))+`}` {
				t.Errorf("%q: %v %s", key, req.Header, req.Body)
			}
		}
	}
}

// A replay that asked for a new key is sent under it, in all its attempts.
func TestNewIdempotencyKey(t *testing.T) {
	t.Parallel()
	g := newRig(t, "request: {url: URL/in, idempotency_header: X-Id}")
	g.Always(g500())
	m := record("{}")
	m.Key, m.KeyRevision = "a b", 12
	for range 2 {
		g.Deliver(context.Background(), m, due())
		if got := g.last(t).Header.Get("X-Id"); got != "r/a%20b#r12" {
			t.Errorf("key %q", got)
		}
	}
}

func TestNoTimestamp(t *testing.T) {
	t.Parallel()
	g := newRig(t, "request: {url: URL/in, body: '[$timestamp]'}")
	for at, want := range map[time.Time]string{
		{}:                `[null]`,
		time.UnixMilli(0): `["1970-01-01T00:00:00.000Z"]`,
		time.UnixMilli(1): `["1970-01-01T00:00:00.001Z"]`,
	} {
		m := record("{}")
		m.Timestamp = at
		if got := g.Deliver(context.Background(), m, due()); got.Status != message.StatusDelivered || string(g.last(t).Body) != want {
			t.Errorf("%v: %+v, %s", at, got, g.last(t).Body)
		}
	}
}
