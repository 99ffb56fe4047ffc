package trial

import (
	"encoding/base64"
	"net/url"
	"strings"

	"github.com/ferry-forward/ferry/internal/forward/jq"
	"github.com/ferry-forward/ferry/internal/route"
)

// Text is a part of a request in which it is known what came from ${…} of the route file.
//
// How it is known: the request is mapped once more by the same route file, but with a marker in place of each such
// value. Where a marker stands, the value stands in the real request, and putting the values in for the markers must
// yield the real request, byte for byte; so a value that only looks like a secret is not taken for one, and one that is
// short is found too. What differs and can't be explained by that was computed from secrets, and is not shown at all.
type Text []piece

type piece struct {
	fixed  string
	secret *route.Secret // nil: fixed text, base64 or computed
	form   form
	base64 Text   // what stands here in base64
	hidden string // computed from secrets: the real text
}

// form is how a value was written into a request.
type form int

const (
	asIs form = iota
	inJSON
	inURL
)

func (f form) of(value string) (string, bool) {
	switch f {
	case inJSON:
		b, err := jq.Marshal(value)
		if err != nil {
			return "", false
		}
		return string(b[1 : len(b)-1]), true
	case inURL:
		// jq's @uri, and what a template puts into a URL: all but RFC 3986's unreserved characters.
		return strings.ReplaceAll(url.QueryEscape(value), "+", "%20"), true
	case asIs:
	}
	return value, true
}

// computed stands for text that can't be shown.
const computed = "(computed from secrets)"

// String shows the text with ${…} where it stands for something.
func (t Text) String() string {
	var out strings.Builder
	for _, p := range t {
		switch {
		case p.secret != nil:
			out.WriteString(p.secret.Reference)
		case p.base64 != nil:
			out.WriteString("(base64 of " + p.base64.String() + ")")
		case p.hidden != "":
			out.WriteString(computed)
		default:
			out.WriteString(p.fixed)
		}
	}
	return out.String()
}

// secret says whether anything of the text is.
func (t Text) secret() bool {
	for _, p := range t {
		if p.secret != nil || p.base64 != nil || p.hidden != "" {
			return true
		}
	}
	return false
}

func (t Text) fixed(s string) Text {
	if s == "" {
		return t
	}
	if n := len(t); n > 0 && t[n-1].secret == nil && t[n-1].base64 == nil && t[n-1].hidden == "" {
		t[n-1].fixed += s
		return t
	}
	return append(t, piece{fixed: s})
}

func (t Text) join(more Text) Text {
	for _, p := range more {
		if p.fixed != "" {
			t = t.fixed(p.fixed)
		} else {
			t = append(t, p)
		}
	}
	return t
}

// marked is a secret with what stood for it.
type marked struct {
	route.Secret
	marker string
}

// hider finds secrets by their markers. What could not be marked is found by its text.
type hider struct {
	marked   []marked
	unmarked []route.Secret
}

// text explains the real text by the one that was made with markers.
func (h *hider) text(withMarkers, real string) Text {
	t, ok := h.explain(withMarkers, real)
	if !ok {
		return Text{{hidden: real}}
	}
	return h.byText(t)
}

// json does so token by token, so that what can't be explained hides no more than itself.
func (h *hider) json(withMarkers, real string) Text {
	if withMarkers == real {
		return h.text(withMarkers, real)
	}
	a, b := tokens(withMarkers), tokens(real)
	if len(a) != len(b) {
		return h.text(withMarkers, real)
	}
	var t Text
	for i := range b {
		one, ok := h.explain(a[i], b[i])
		if !ok {
			one = hide(b[i])
		}
		t = t.join(one)
	}
	return h.byText(t)
}

// hide hides a token, or what is inside its quotes.
func hide(token string) Text {
	if len(token) > 2 && token[0] == '"' {
		return Text{{fixed: `"`}, {hidden: token[1 : len(token)-1]}, {fixed: `"`}}
	}
	return Text{{hidden: token}}
}

// tokens splits JSON into strings and what stands between them.
func tokens(s string) []string {
	var all []string
	begin, inString := 0, false
	for i := 0; i < len(s); i++ {
		switch {
		case inString && s[i] == '\\':
			i++
		case s[i] == '"' && inString:
			all = append(all, s[begin:i+1])
			begin, inString = i+1, false
		case s[i] == '"':
			all = append(all, s[begin:i])
			begin, inString = i, true
		}
	}
	return append(all, s[begin:])
}

// explain returns real as the fixed text, and the values, that withMarkers says it is made of.
func (h *hider) explain(withMarkers, real string) (Text, bool) {
	if withMarkers == real {
		return Text(nil).fixed(real), true
	}
	differ := difference(withMarkers, real)
	at, found := h.first(withMarkers)
	if at < 0 || at > differ {
		return h.explainBase64(withMarkers, real, differ)
	}
	for _, f := range found {
		value, ok := f.form.of(f.secret.Value)
		if !ok || !strings.HasPrefix(real[at:], value) {
			continue
		}
		rest, ok := h.explain(withMarkers[at+len(f.marker):], real[at+len(value):])
		if ok {
			return Text(nil).fixed(real[:at]).join(Text{{secret: f.secret, form: f.form}}).join(rest), true
		}
	}
	return nil, false
}

func difference(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return i
}

type occurrence struct {
	secret *route.Secret
	form   form
	marker string // as it stands there
}

// first returns the place of the first marker, and what it may be: the form that leaves a value as it is comes first.
func (h *hider) first(s string) (at int, found []occurrence) {
	at = -1
	for i := range h.marked {
		m := &h.marked[i]
		for _, f := range []form{asIs, inJSON, inURL} {
			marker, ok := f.of(m.marker)
			if !ok {
				continue
			}
			j := strings.Index(s, marker)
			switch {
			case j < 0 || at >= 0 && j > at:
			case j == at:
				found = append(found, occurrence{&m.Secret, f, marker})
			default:
				at, found = j, []occurrence{{&m.Secret, f, marker}}
			}
		}
	}
	return at, found
}

// explainBase64 looks into the base64 at the first difference, which basic authentication is.
func (h *hider) explainBase64(withMarkers, real string, differ int) (Text, bool) {
	begin := differ
	for begin > 0 && base64Byte(real[begin-1]) {
		begin--
	}
	a, b := base64End(withMarkers, begin), base64End(real, begin)
	plainA, errA := base64.StdEncoding.DecodeString(withMarkers[begin:a])
	plainB, errB := base64.StdEncoding.DecodeString(real[begin:b])
	if begin == b || errA != nil || errB != nil {
		return nil, false
	}
	inner, ok := h.explain(string(plainA), string(plainB))
	if !ok || !inner.secret() {
		return nil, false
	}
	rest, ok := h.explain(withMarkers[a:], real[b:])
	if !ok {
		return nil, false
	}
	return Text(nil).fixed(real[:begin]).join(Text{{base64: inner}}).join(rest), true
}

func base64Byte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '+' || c == '/'
}

func base64End(s string, from int) int {
	for from < len(s) && base64Byte(s[from]) {
		from++
	}
	for from < len(s) && s[from] == '=' {
		from++
	}
	return from
}

// shortest is how long a value must be that is looked for by its text: shorter ones would be found everywhere.
const shortest = 4

// byText hides the values that could not be marked.
func (h *hider) byText(t Text) Text {
	for i := range h.unmarked {
		s := &h.unmarked[i]
		if len(s.Value) < shortest {
			continue
		}
		for _, f := range []form{asIs, inJSON, inURL} {
			if value, ok := f.of(s.Value); ok {
				t = t.replace(value, piece{secret: s, form: f})
			}
		}
	}
	return t
}

func (t Text) replace(value string, by piece) Text {
	var out Text
	for _, p := range t {
		rest := p.fixed
		for p.fixed != "" {
			before, after, found := strings.Cut(rest, value)
			if out = out.fixed(before); !found {
				break
			}
			out, rest = append(out, by), after
		}
		if p.fixed == "" {
			out = append(out, p)
		}
	}
	return out
}
