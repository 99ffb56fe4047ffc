package decode

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deeply arrays and objects may be nested.
const maxDepth = 10_000

// maxNumber is how many characters a number may have. Arithmetic on millions of digits takes a minute, which no time
// limit can interrupt.
const maxNumber = 10_000

// parser reads one document. The text is copied once, as src; strings without escapes and numbers are parts of it.
// A method that meets a fault records it and returns; the first one stays.
type parser struct {
	src   string
	pos   int
	depth int
	fault *Error
}

func parseJSON(b []byte) (any, *Error) {
	if i := invalidUTF8(b); i >= 0 {
		return nil, &Error{i, "not valid UTF-8"}
	}
	p := &parser{src: string(b)}
	if strings.HasPrefix(p.src, "\uFEFF") {
		p.pos = len("\uFEFF")
	}
	p.space()
	if p.pos == len(p.src) {
		return nil, &Error{p.pos, "empty, where a JSON document is needed"}
	}
	v := p.value()
	if p.fault == nil {
		if p.space(); p.pos < len(p.src) {
			p.fail("text after the end of the JSON document")
		}
	}
	if p.fault != nil {
		return nil, p.fault
	}
	return v, nil
}

func (p *parser) fail(reason string) {
	if p.fault == nil {
		p.fault = &Error{p.pos, reason}
	}
}

// failHere says that something else was expected.
func (p *parser) failHere(expected string) {
	if p.pos >= len(p.src) {
		p.fail("JSON ends too early: " + expected + " is missing")
		return
	}
	r, _ := utf8.DecodeRuneInString(p.src[p.pos:])
	p.fail(fmt.Sprintf("invalid JSON: %q where %s should be", r, expected))
}

func (p *parser) space() {
	for p.pos < len(p.src) {
		switch p.src[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

// take consumes c when it comes next.
func (p *parser) take(c byte) bool {
	if p.pos < len(p.src) && p.src[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

// value reads a value; blanks before it are already read.
func (p *parser) value() any {
	if p.pos == len(p.src) {
		p.failHere("a value")
		return nil
	}
	switch c := p.src[p.pos]; c {
	case '{':
		return nested(p, (*parser).object)
	case '[':
		return nested(p, (*parser).array)
	case '"':
		return p.str()
	case 't':
		p.literal("true")
		return true
	case 'f':
		p.literal("false")
		return false
	case 'n':
		p.literal("null")
		return nil
	default:
		if c == '-' || digit(c) {
			return p.number()
		}
	}
	p.failHere("a value")
	return nil
}

func (p *parser) literal(word string) {
	if !strings.HasPrefix(p.src[p.pos:], word) {
		p.failHere("a value")
		return
	}
	p.pos += len(word)
}

func nested[T any](p *parser, read func(*parser) T) any {
	if p.depth == maxDepth {
		p.fail(fmt.Sprintf("nested more than %d levels deep", maxDepth))
		return nil
	}
	p.depth++
	p.pos++
	v := read(p)
	p.depth--
	return v
}

// array reads from behind the opening bracket.
func (p *parser) array() []any {
	list := []any{}
	if p.space(); p.take(']') {
		return list
	}
	for {
		p.space()
		list = append(list, p.value())
		if p.fault != nil {
			return nil
		}
		p.space()
		switch {
		case p.take(']'):
			return list
		case !p.take(','):
			p.failHere(`"," or "]"`)
			return nil
		}
	}
}

// object reads from behind the opening brace. Of equal names the last wins.
func (p *parser) object() map[string]any {
	fields := map[string]any{}
	if p.space(); p.take('}') {
		return fields
	}
	for {
		p.space()
		if p.pos == len(p.src) || p.src[p.pos] != '"' {
			p.failHere("a name in quotes")
			return nil
		}
		name := p.str()
		if p.space(); p.fault == nil && !p.take(':') {
			p.failHere(`":"`)
		}
		if p.fault != nil {
			return nil
		}
		p.space()
		fields[name] = p.value()
		if p.fault != nil {
			return nil
		}
		p.space()
		switch {
		case p.take('}'):
			return fields
		case !p.take(','):
			p.failHere(`"," or "}"`)
			return nil
		}
	}
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

// digits reads one digit or more.
func (p *parser) digits() {
	if p.pos == len(p.src) || !digit(p.src[p.pos]) {
		p.failHere("a digit")
		return
	}
	for p.pos < len(p.src) && digit(p.src[p.pos]) {
		p.pos++
	}
}

// number keeps the text as it is.
func (p *parser) number() json.Number {
	start := p.pos
	p.take('-')
	if !p.take('0') {
		p.digits()
	}
	if p.take('.') {
		p.digits()
	}
	if p.take('e') || p.take('E') {
		if !p.take('+') {
			p.take('-')
		}
		p.digits()
	}
	if p.pos-start > maxNumber {
		p.pos = start
		p.fail(fmt.Sprintf("a number of more than %d characters", maxNumber))
	}
	return json.Number(p.src[start:p.pos])
}

// str reads a string literal, its quotes included.
func (p *parser) str() string {
	p.pos++
	start := p.pos
	for p.pos < len(p.src) {
		switch c := p.src[p.pos]; {
		case c == '"':
			p.pos++
			return p.src[start : p.pos-1]
		case c == '\\':
			return p.escaped(start)
		case c < ' ':
			p.fail(fmt.Sprintf("invalid JSON: control character 0x%02x in a string", c))
			return ""
		}
		p.pos++
	}
	p.failHere("the closing quote of a string")
	return ""
}

// escaped reads on in a string that began at start and has its first escape here.
func (p *parser) escaped(start int) string {
	var out strings.Builder
	out.WriteString(p.src[start:p.pos])
	for p.pos < len(p.src) {
		c := p.src[p.pos]
		switch {
		case c == '"':
			p.pos++
			return out.String()
		case c == '\\':
			p.escape(&out)
			if p.fault != nil {
				return ""
			}
			continue
		case c < ' ':
			p.fail(fmt.Sprintf("invalid JSON: control character 0x%02x in a string", c))
			return ""
		}
		out.WriteByte(c)
		p.pos++
	}
	p.failHere("the closing quote of a string")
	return ""
}

// escape reads one escape sequence.
func (p *parser) escape(out *strings.Builder) {
	const plain, meaning = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if p.pos+1 >= len(p.src) {
		p.pos = len(p.src)
		p.failHere("the closing quote of a string")
		return
	}
	c := p.src[p.pos+1]
	if i := strings.IndexByte(plain, c); i >= 0 {
		out.WriteByte(meaning[i])
		p.pos += 2
		return
	}
	if c != 'u' {
		p.pos++
		p.failHere("an escape character")
		return
	}
	r, ok := p.hex(p.pos + 2)
	if !ok {
		p.fail(`invalid JSON: \u without four hexadecimal digits`)
		return
	}
	size := len(`\u0000`)
	if utf16.IsSurrogate(r) {
		var low rune
		if strings.HasPrefix(p.src[p.pos+size:], `\u`) {
			low, _ = p.hex(p.pos + size + 2)
		}
		r = utf16.DecodeRune(r, low)
		if r == utf8.RuneError {
			p.fail("an escaped lone surrogate, which is no character")
			return
		}
		size *= 2
	}
	out.WriteRune(r)
	p.pos += size
}

// hex reads four hexadecimal digits at an offset.
func (p *parser) hex(at int) (rune, bool) {
	if at+4 > len(p.src) {
		return 0, false
	}
	var r rune
	for _, c := range []byte(p.src[at : at+4]) {
		switch {
		case digit(c):
			r = r<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case 'A' <= c && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}
