package trial

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/ferry-forward/ferry/internal/forward"
	"github.com/ferry-forward/ferry/internal/forward/send"
	"github.com/ferry-forward/ferry/internal/route"
)

// Shown is a request whose secrets are known for what they are.
type Shown struct {
	Method  string
	URL     Text
	Headers []Header // in the order of their names
	Body    Text
	// Raw is the body as it goes on the wire. It may hold secrets.
	Raw []byte

	real *send.Request
}

// Header is one line of a request's header.
type Header struct {
	Name  string
	Value Text
}

// Show finds out what of the request of m came from ${…} of the route file.
func (t *Trial) Show(ctx context.Context, m *Mapped) *Shown {
	req, h := t.shadow(ctx, m)
	return h.request(req, m.Request)
}

// request explains the real request by the one that was made with markers.
func (h *hider) request(withMarkers, real *send.Request) *Shown {
	s := &Shown{
		Method: real.Method, URL: h.text(withMarkers.URL.String(), real.URL.String()), Raw: real.Body, real: real,
	}
	for _, name := range slices.Sorted(maps.Keys(real.Header)) {
		for i, value := range real.Header[name] {
			// As HTTP writes it: without blanks around it.
			value, marked := textproto.TrimString(value), ""
			if values := withMarkers.Header[name]; i < len(values) {
				marked = textproto.TrimString(values[i])
			}
			s.Headers = append(s.Headers, Header{name, h.text(marked, value)})
		}
	}
	if json.Valid(real.Body) {
		s.Body = h.json(string(withMarkers.Body), string(real.Body))
	} else {
		s.Body = h.text(string(withMarkers.Body), string(real.Body))
	}
	return s
}

// explained says whether nothing of the request had to be hidden.
func (s *Shown) explained() bool {
	hidden := func(p piece) bool { return p.hidden != "" }
	return !slices.ContainsFunc(s.URL, hidden) && !slices.ContainsFunc(s.Body, hidden) &&
		!slices.ContainsFunc(s.Headers, func(h Header) bool { return slices.ContainsFunc(h.Value, hidden) })
}

// shadow maps the message by the route file with markers, and returns the request and how to read it. Two kinds of
// values are not marked but found by their text: those in whose place the route takes no other (a part of a host, say),
// and those by which it only chooses what to send, which is not the same with any other value.
func (t *Trial) shadow(ctx context.Context, m *Mapped) (*send.Request, *hider) {
	var secrets []route.Secret
	for _, s := range t.file.Secrets() {
		if s.Value != "" {
			secrets = append(secrets, s)
		}
	}
	if len(secrets) == 0 {
		return m.Request, &hider{}
	}
	h := &hider{marked: t.mark(secrets, m.Request, 0)}
	req := t.mapBy(ctx, m, h)
	if req != nil && h.request(req, m.Request).explained() {
		return req, h
	}
	var markable, unmarked []route.Secret
	for _, s := range secrets {
		if t.markable(ctx, m, s) {
			markable = append(markable, s)
		} else {
			unmarked = append(unmarked, s)
		}
	}
	h = &hider{marked: t.mark(markable, m.Request, 0), unmarked: unmarked}
	if req = t.mapBy(ctx, m, h); req == nil {
		return m.Request, &hider{unmarked: secrets}
	}
	return req, h
}

// markable says whether the route maps the message with a marker for the secret, and what it makes of it depends on the
// marker: if two different ones come to the same, the route only chooses by the value.
func (t *Trial) markable(ctx context.Context, m *Mapped, s route.Secret) bool {
	one := &hider{marked: t.mark([]route.Secret{s}, m.Request, 0)}
	first := t.mapBy(ctx, m, one)
	if first == nil {
		return false
	}
	if one.request(first, m.Request).explained() {
		return true
	}
	two := &hider{marked: t.mark([]route.Secret{s}, m.Request, 1)}
	second := t.mapBy(ctx, m, two)
	if second == nil {
		return false
	}
	two.marked[0].Value = one.marked[0].marker
	return !two.request(second, first).explained()
}

// mapBy maps the message by the route file with markers. It returns nil when that does not work.
func (t *Trial) mapBy(ctx context.Context, m *Mapped, h *hider) *send.Request {
	file, err := t.file.Marked(h.mark)
	if err != nil {
		return nil
	}
	d := forward.New(file.Route(t.route.Name), forward.Options{Version: t.version})
	defer d.Close()
	req, failure := d.Map(ctx, m.Message, m.Attempt)
	if failure != nil {
		return nil
	}
	return req
}

// mark chooses a marker for each secret, none of which is part of the request. Another seed gives others.
func (t *Trial) mark(secrets []route.Secret, real *send.Request, seed int) []marked {
	taken := real.URL.String() + string(real.Body)
	for _, values := range real.Header {
		taken += strings.Join(values, "")
	}
	var all []marked
	number := seed * 1000
	for _, s := range secrets {
		for {
			number++
			if marker := marker(s.Value, number); !strings.Contains(taken, marker) {
				all = append(all, marked{s, marker})
				break
			}
		}
	}
	return all
}

func (h *hider) mark(s route.Secret) string {
	for _, m := range h.marked {
		if m.Reference == s.Reference {
			return m.marker
		}
	}
	return s.Value
}

var digits = regexp.MustCompile(`^[0-9]+$`)

// marker is text that can stand where the value stands: a URL for a URL, a number (or a port) for a number, else a word
// that can be a host. No marker is the beginning of another.
func marker(value string, number int) string {
	word := fmt.Sprintf("ferryqz%05dzq", number)
	if digits.MatchString(value) {
		const first = 10_007 // to 65535, a port
		return fmt.Sprint(first + number%50_000)
	}
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return word
	}
	at := u.Scheme + "://" + word + ".example"
	if u.Path != "" || u.RawQuery != "" {
		at += "/" + word
	}
	return at
}
