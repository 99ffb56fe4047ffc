package forward

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/ferry-forward/ferry/internal/forward/decode"
	"github.com/ferry-forward/ferry/internal/forward/jq"
	"github.com/ferry-forward/ferry/internal/forward/send"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

// Failure is why a message can't be made into a request. It is an error.
type Failure struct {
	Reason message.Reason // Undecodable or Unmappable
	Field  string         // of the route, such as request.body; empty when undecodable
	Offset int            // in the field's text
	Err    error
}

// Error says which field failed, and why. It shows no more of the message than jq does.
func (f *Failure) Error() string {
	if f.Field == "" {
		return f.Err.Error()
	}
	return f.Field + ": " + f.Err.Error()
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// bodyField is the path of the body's program in a route.
const bodyField = "request.body"

var errNoURL = errors.New("the result is no absolute URL")

// Map makes the request of one attempt (from 1), without sending it. The request holds whatever secrets the route has.
func (d *Deliverer) Map(ctx context.Context, m *message.Message, attempt int) (*send.Request, *Failure) {
	return d.mapWith(ctx, m, d.env(m, attempt))
}

// mapWith maps. Programs run to their end even when ctx is cancelled, and once more when one took too long: a message
// must not fail for good because the process was stopped or its machine stood still.
func (d *Deliverer) mapWith(ctx context.Context, m *message.Message, env *jq.Env) (*send.Request, *Failure) {
	ctx = context.WithoutCancel(ctx)
	req, failure := d.mapOnce(ctx, m, env)
	if failure != nil && errors.Is(failure.Err, jq.ErrTimeLimit) {
		return d.mapOnce(ctx, m, env)
	}
	return req, failure
}

func (d *Deliverer) mapOnce(ctx context.Context, m *message.Message, env *jq.Env) (*send.Request, *Failure) {
	rt := &d.route.Request
	var value any // of a tombstone: null
	if d.readsValue && !m.Tombstone() {
		var err error
		if value, err = d.route.Decode.Value(m.Value); err != nil {
			return nil, &Failure{Reason: message.Undecodable, Err: err}
		}
	}
	body, failure := d.body(ctx, m, value, env)
	if failure != nil {
		return nil, failure
	}
	u, failure := targetURL(ctx, rt.URL, value, env)
	if failure != nil {
		return nil, failure
	}
	header := make(http.Header)
	d.forwardHeaders(header, m)
	for _, h := range rt.Headers {
		text, err := h.Value.Expand(ctx, value, env)
		if err != nil {
			return nil, unmappable("request.headers."+h.Name, err)
		}
		header.Set(h.Name, text)
	}
	d.finish(header, m, len(body) > 0)
	return &send.Request{Method: rt.Method, URL: u, Header: header, Body: body}, nil
}

func unmappable(field string, err error) *Failure {
	f := &Failure{Reason: message.Unmappable, Field: field, Err: err}
	var part *jq.ExpandError
	if errors.As(err, &part) {
		f.Offset = part.Offset
	}
	return f
}

// readsValue says whether the record's value has to be understood in order to be sent.
func readsValue(r *route.Request) bool {
	if r.Body != nil || r.URL.UsesInput() {
		return true
	}
	for _, h := range r.Headers {
		if h.Value.UsesInput() {
			return true
		}
	}
	return false
}

// body is the mapped body, or the record's bytes as they came. A tombstone has none, and methods that ask for something
// have one only if the route maps it.
func (d *Deliverer) body(ctx context.Context, m *message.Message, value any, env *jq.Env) ([]byte, *Failure) {
	rt := &d.route.Request
	switch {
	case m.Tombstone():
		return nil, nil
	case rt.Body == nil && (rt.Method == http.MethodGet || rt.Method == http.MethodHead):
		return nil, nil
	case rt.Body == nil:
		return m.Value, nil
	}
	mapped, err := rt.Body.One(ctx, value, env)
	if err != nil {
		return nil, unmappable(bodyField, err)
	}
	body, err := jq.Marshal(mapped)
	if err != nil {
		return nil, unmappable(bodyField, err)
	}
	return body, nil
}

// targetURL expands the URL. Its errors do not show it: it may hold secrets.
func targetURL(ctx context.Context, t *jq.Template, value any, env *jq.Env) (*url.URL, *Failure) {
	text, err := t.Expand(ctx, value, env)
	if err != nil {
		return nil, unmappable("request.url", err)
	}
	u, err := url.Parse(text)
	var parse *url.Error
	switch {
	case errors.As(err, &parse):
		return nil, unmappable("request.url", fmt.Errorf("%w: %w", errNoURL, parse.Err))
	case err != nil || u.Host == "":
		return nil, unmappable("request.url", errNoURL)
	}
	return u, nil
}

// notForwarded are the headers that a record can't bring, beside those that HTTP owns: what they say is between Ferry
// and the destination.
var notForwarded = []string{"Accept-Encoding", "Expect", "HTTP2-Settings"}

// forwardHeaders sends the record's headers on that the route's globs match. Null values and names that HTTP refuses are
// skipped; control bytes in a value are percent-encoded.
func (d *Deliverer) forwardHeaders(out http.Header, m *message.Message) {
	rt := &d.route.Request
	if len(rt.ForwardHeaders) == 0 {
		return
	}
	for _, h := range m.Headers {
		if h.Value == nil || !send.ValidHeaderName(h.Name) || d.owned(h.Name) || !matches(rt.ForwardHeaders, h.Name) {
			continue
		}
		out.Add(h.Name, send.EncodeHeaderValue(string(h.Value)))
	}
}

func (d *Deliverer) owned(name string) bool {
	if route.OwnedHeader(name) || strings.EqualFold(name, d.route.Request.IdempotencyHeader) {
		return true
	}
	for _, n := range notForwarded {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

func matches(globs []string, name string) bool {
	name = strings.ToLower(name)
	for _, g := range globs {
		if ok, err := path.Match(g, name); ok && err == nil {
			return true
		}
	}
	return false
}

// finish sets what neither the route nor the record did, and the idempotency key, which neither can.
func (d *Deliverer) finish(header http.Header, m *message.Message, hasBody bool) {
	if hasBody {
		setDefault(header, "Content-Type", d.contentType())
	}
	setDefault(header, "User-Agent", d.userAgent)
	key := d.route.Name + "/" + m.Key
	if m.KeyRevision > 0 {
		key += "#r" + strconv.Itoa(m.KeyRevision)
	}
	header.Set(d.route.Request.IdempotencyHeader, send.EncodeKey(key))
}

func setDefault(header http.Header, name, value string) {
	if _, set := header[name]; !set {
		header.Set(name, value)
	}
}

func (d *Deliverer) contentType() string {
	if d.route.Request.Body != nil {
		return "application/json"
	}
	switch d.route.Decode.Type {
	case decode.Text:
		return "text/plain; charset=utf-8"
	case decode.Bytes:
		return "application/octet-stream"
	case decode.JSON:
	}
	return "application/json"
}
