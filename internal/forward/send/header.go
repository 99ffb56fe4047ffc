package send

import (
	"net/http"
	"net/url"
	"strings"
)

const upperHex = "0123456789ABCDEF"

// EncodeKey makes any bytes fit for an Idempotency-Key: those outside 0x21–0x7E, and %, are percent-encoded, so that
// different keys stay different.
func EncodeKey(key string) string {
	return encode(key, func(c byte) bool { return c < 0x21 || c > 0x7e || c == '%' })
}

// EncodeHeaderValue percent-encodes the bytes that HTTP does not allow in a header value (control bytes but tab); all
// others, % included, stay as they are.
func EncodeHeaderValue(value string) string { return encode(value, controlByte) }

func controlByte(c byte) bool { return c < 0x20 && c != '\t' || c == 0x7f }

func encode(s string, bad func(byte) bool) string {
	n := 0
	for i := range len(s) {
		if bad(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	out := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		c := s[i]
		if bad(c) {
			out = append(out, '%', upperHex[c>>4], upperHex[c&15])
			continue
		}
		out = append(out, c)
	}
	return string(out)
}

// ValidHeaderName says whether HTTP takes the name: a token of RFC 9110.
func ValidHeaderName(name string) bool {
	for i := range len(name) {
		if !tokenByte(name[i]) {
			return false
		}
	}
	return name != ""
}

func tokenByte(c byte) bool {
	switch {
	case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// safeHeader copies a header so that the transport can't refuse it: names that are none are left out, control bytes in
// values are encoded. A header must never keep a message from being sent.
func safeHeader(h http.Header) http.Header {
	out := make(http.Header, len(h)+4)
	for name, values := range h {
		if !ValidHeaderName(name) {
			continue
		}
		safe := make([]string, len(values))
		for i, v := range values {
			safe[i] = EncodeHeaderValue(v)
		}
		out[name] = safe
	}
	return out
}

// RedactURL returns the URL without user information, query and fragment, which may hold secrets.
func RedactURL(raw string) string {
	if raw == "" {
		return ""
	}
	u, err := url.Parse(raw)
	if err != nil {
		return "(unreadable)"
	}
	if u.Opaque != "" {
		return u.Scheme + ":(opaque)"
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
	return u.String()
}
