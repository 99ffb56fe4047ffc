package route

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/ferry-forward/ferry/internal/forward/decode"
)

// maxName is River's limit for queue names.
const maxName = 64

// namePattern is River's rule for queue names, without the | that it allows.
var namePattern = regexp.MustCompile(`^[a-z0-9]+([_-][a-z0-9]+)*$`)

func routeName() typ[string] {
	t := text("", func(s string) string {
		switch {
		case len(s) > maxName:
			return fmt.Sprintf("has %d characters; at most %d are allowed", len(s), maxName)
		case !namePattern.MatchString(s):
			return "is no name for a route; use lower-case letters and digits, with single - or _ between them"
		case s == "default" || s == "ferry" || strings.HasPrefix(s, "ferry-") || strings.HasPrefix(s, "ferry_"):
			return "is reserved for Ferry's own queues; choose another"
		}
		return ""
	})
	t.schema = func() schema {
		return schema{"type": "string", "maxLength": maxName, "pattern": namePattern.String(), "not": schema{"pattern": "^(default|ferry|ferry[-_].*)$"}}
	}
	return t
}

var topicPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)

func topicName() typ[string] {
	return text(topicPattern.String(), func(s string) string {
		if !topicPattern.MatchString(s) || s == "." || s == ".." {
			return "is no name for a Kafka topic; it has 1 to 249 letters, digits, dots, _ and -"
		}
		return ""
	})
}

func notTwice(v string, before []string) string {
	if slices.Contains(before, v) {
		return "stands here twice; remove one"
	}
	return ""
}

var methods = []string{"POST", "PUT", "PATCH", "DELETE", "GET", "HEAD"}

func method() typ[string] { return choice(methods, nil) }

func ordering() typ[string] {
	t := choice([]string{"none"}, nil)
	return typ[string]{
		parse: func(p *parser, n *node, at string) (string, bool) {
			if n.kind == kindText && n.raw == "none" {
				return "none", true
			}
			p.fault(n, at, "is not available in this version; remove it, or write none")
			return "", false
		},
		schema: t.schema,
	}
}

func shortText(longest int) typ[string] {
	t := text("", func(s string) string {
		if n := len([]rune(s)); n > longest {
			return fmt.Sprintf("has %d characters; at most %d are allowed", n, longest)
		}
		return ""
	})
	t.schema = func() schema { return schema{"type": "string", "maxLength": longest} }
	return t
}

const headerPattern = "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"

var headerToken = regexp.MustCompile(headerPattern)

// hopByHop are the headers that belong to one connection or that HTTP computes.
var hopByHop = []string{
	"Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Proxy-Connection", "TE", "Trailer", "Upgrade",
}

// OwnedHeader says whether an HTTP header of this name is made by HTTP itself, so that neither a route nor a record may
// set it. The route's idempotency header is owned too, by Ferry.
func OwnedHeader(name string) bool {
	return slices.ContainsFunc(hopByHop, func(h string) bool { return strings.EqualFold(h, name) })
}

func headerFault(name string) string {
	switch {
	case !headerToken.MatchString(name):
		return "is no name for an HTTP header; use letters, digits and -"
	case OwnedHeader(name):
		return "is a header that HTTP sets itself; remove it"
	}
	return ""
}

func headerName() typ[string] {
	t := text(headerPattern, headerFault)
	t.schema = func() schema { return orReference(schema{"type": "string", "pattern": headerPattern}) }
	return t
}

// glob is a pattern for Kafka header names.
func glob() typ[string] {
	t := text("", func(s string) string {
		if _, err := path.Match(s, ""); err != nil || s == "" || strings.Contains(s, "/") {
			return "is no pattern for header names; use letters, digits, -, * and ?"
		}
		return ""
	})
	return typ[string]{
		parse: func(p *parser, n *node, at string) (string, bool) {
			s, ok := t.parse(p, n, at)
			return strings.ToLower(s), ok
		},
		schema: t.schema,
	}
}

// laterTypes need a schema registry.
var laterTypes = []decode.Type{"avro", "protobuf", "json-schema"}

func decodeType() typ[decode.Type] { return choice(decode.Types(), laterTypes) }

// decodeFormat is the type alone, or a mapping.
func decodeFormat() typ[decode.Format] {
	long := object(
		field[decode.Format]{
			name: "type", required: true, doc: "json, text or bytes.",
			value: into(decodeType(), func(f *decode.Format, v decode.Type) { f.Type = v }),
		},
		field[decode.Format]{
			name: "wire_header", doc: "strip: five bytes of Confluent's serializers before the JSON document are taken off.",
			value: into(choice([]string{"strip"}, nil), func(f *decode.Format, _ string) { f.StripWireHeader = true }),
		},
	)
	return typ[decode.Format]{
		parse: func(p *parser, n *node, at string) (decode.Format, bool) {
			if n.kind != kindMap {
				t, ok := decodeType().parse(p, n, at)
				return decode.Format{Type: t}, ok
			}
			f, ok := long.parse(p, n, at)
			if ok && f.StripWireHeader && f.Type != decode.JSON {
				p.fault(n.get("wire_header"), at+".wire_header", "goes with type: json alone; remove it")
				ok = false
			}
			return f, ok
		},
		schema: func() schema {
			return schema{"anyOf": []any{decodeType().schema(), long.schema()}, "default": "json"}
		},
	}
}
