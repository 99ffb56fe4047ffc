package trial

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// argumentBytes is how long a body may be as an argument of a command; Linux takes 128 KiB. A longer one goes through a
// pipe.
const argumentBytes = 100_000

// expectBytes is how long a body is before some curl asks whether it may send it.
const expectBytes = 1024

// Curl returns a command for a POSIX shell that sends the very request with curl: the same method, URL, headers and
// body, byte for byte. What came from ${NAME} of the route file is "$NAME" in it, what came from ${file:/path} is
// "$(cat /path)"; where a value had to be encoded, the command does so by jq or base64. What was computed from secrets
// must be put in by hand: the command asks for it.
func (s *Shown) Curl() string {
	c := &command{}
	c.option("curl -sS -i --compressed")
	if strings.ContainsAny(s.real.URL.String(), "[]{}") {
		c.last += " --globoff"
	}
	if strings.Contains(s.real.URL.Path+"/", "/./") || strings.Contains(s.real.URL.Path+"/", "/../") {
		c.last += " --path-as-is"
	}
	method := "-X " + s.Method
	if s.Method == http.MethodHead && len(s.Raw) == 0 {
		method = "--head"
	}
	c.option(method + " " + c.word(s.URL))
	s.headers(c)
	pipe := ""
	switch {
	case !utf8.Valid(s.Raw) || control(string(s.Raw)):
		pipe = "printf '" + octal(string(s.Raw)) + "' | "
		c.option("--data-binary @-")
	case len(s.Raw) > argumentBytes:
		pipe = "printf %s " + c.word(s.Body) + " | "
		c.option("--data-binary @-")
	case len(s.Raw) > 0:
		c.option("--data-raw " + c.word(s.Body))
	case s.announcesLength():
		c.option("--data-raw ''")
	}
	return pipe + strings.Join(append(c.lines, c.last), " \\\n  ")
}

// announcesLength says whether the request has Content-Length: 0.
func (s *Shown) announcesLength() bool {
	switch s.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		return true
	}
	return false
}

// headers writes the request's headers, and takes away those that curl sends by itself.
func (s *Shown) headers(c *command) {
	set := map[string]bool{}
	for _, h := range s.Headers {
		set[strings.ToLower(h.Name)] = true
		if len(h.Value) == 0 {
			c.option("-H " + c.word(Text{{fixed: h.Name + ";"}})) // this is how curl sends an empty one
			continue
		}
		c.option("-H " + c.word(Text(nil).fixed(h.Name+": ").join(h.Value)))
	}
	if !set["accept-encoding"] {
		c.option("-H 'Accept-Encoding: gzip'")
	}
	for _, own := range []struct {
		name string
		sent bool
	}{
		{"Accept", true},
		{"Content-Type", len(s.Raw) > 0 || s.announcesLength()},
		{"Expect", len(s.Raw) > expectBytes},
	} {
		if own.sent && !set[strings.ToLower(own.name)] {
			c.option("-H '" + own.name + ":'")
		}
	}
}

// command is a command as it grows, and how many values must be put in by hand.
type command struct {
	lines  []string
	last   string
	byHand int
}

func (c *command) option(s string) {
	if c.last != "" {
		c.lines = append(c.lines, c.last)
	}
	c.last = s
}

// harmless is what needs no quotes.
var harmless = regexp.MustCompile(`^[A-Za-z0-9_./:=@%+,-]+$`)

// word quotes text so that the shell makes exactly this of it.
func (c *command) word(t Text) string {
	if len(t) == 0 {
		return "''"
	}
	if len(t) == 1 && t[0].fixed != "" && harmless.MatchString(t[0].fixed) {
		return t[0].fixed
	}
	if inDouble(t) {
		return `"` + c.inside(t) + `"`
	}
	var out strings.Builder
	for _, p := range t {
		if p.fixed == "" {
			out.WriteString(`"` + c.inside(Text{p}) + `"`)
			continue
		}
		out.WriteString(quoted(p.fixed))
	}
	return out.String()
}

// inDouble says whether the text reads best in one pair of double quotes: there is a secret in it and nothing that means
// something in them. (! does where commands are typed.)
func inDouble(t Text) bool {
	for _, p := range t {
		if p.fixed != "" && (strings.ContainsAny(p.fixed, "\"\\$`!") || !utf8.ValidString(p.fixed) || control(p.fixed)) {
			return false
		}
	}
	return t.secret()
}

// quoted puts fixed text into single quotes, which nothing but a single quote ends; bytes that are no text, and control
// characters, are printed by printf.
func quoted(s string) string {
	var out strings.Builder
	for s != "" {
		n := 0
		for n < len(s) {
			r, size := utf8.DecodeRuneInString(s[n:])
			if r == utf8.RuneError && size == 1 || controlRune(r) {
				break
			}
			n += size
		}
		if n > 0 {
			out.WriteString("'" + strings.ReplaceAll(s[:n], "'", `'\''`) + "'")
		}
		odd := n
		for odd < len(s) {
			r, size := utf8.DecodeRuneInString(s[odd:])
			if (r != utf8.RuneError || size != 1) && !controlRune(r) {
				break
			}
			odd += size
		}
		if odd > n {
			out.WriteString(`"$(printf '` + octal(s[n:odd]) + `')"`)
		}
		s = s[odd:]
	}
	return out.String()
}

func controlRune(r rune) bool { return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 }

func control(s string) bool { return strings.ContainsFunc(s, controlRune) }

// octal writes bytes as printf's format string.
func octal(s string) string {
	var out strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c == '%':
			out.WriteString("%%")
		case c == '\\' || c == '\'' || c < ' ' || c >= 0x7f, c == '-' && i == 0: // which would begin an option
			fmt.Fprintf(&out, `\%03o`, c)
		default:
			out.WriteByte(c)
		}
	}
	return out.String()
}

// inside writes text as it stands between double quotes.
func (c *command) inside(t Text) string {
	var out strings.Builder
	for i, p := range t {
		switch {
		case p.secret != nil:
			next := ""
			if i+1 < len(t) {
				next = t[i+1].fixed
			}
			out.WriteString(expansion(p, next))
		case p.base64 != nil:
			out.WriteString("$(printf %s " + c.word(p.base64) + ` | base64 | tr -d '\n')`)
		case p.hidden != "":
			c.byHand++
			out.WriteString("${FERRY_" + strconv.Itoa(c.byHand) + ":?is computed from secrets, set it by hand}")
		default:
			out.WriteString(p.fixed)
		}
	}
	return out.String()
}

// expansion is what stands for a secret between double quotes. next is what follows.
func expansion(p piece, next string) string {
	name, file := p.secret.Name()
	value := "$" + name
	if file {
		value = fromFile(name, p.secret.Value, p.secret.Cut)
	} else if next != "" && nameByte(next[0]) {
		value = "${" + name + "}"
	}
	if plain, ok := p.form.of(p.secret.Value); ok && plain == p.secret.Value {
		return value
	}
	// Some jq leave these five as they are, which are no unreserved characters.
	program := `@uri|gsub("(?<c>[!*()\u0027])";{"!":"%21","*":"%2A","(":"%28",")":"%29","\u0027":"%27"}[.c])`
	if p.form == inJSON {
		program = "tojson[1:-1]"
	}
	return `$(jq -nr --arg v "` + value + `" '$v|` + program + `')`
}

func nameByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// fromFile reads a file's content without the end of its last line. The shell takes off all line feeds at its end, and
// no carriage return.
func fromFile(path, value, cut string) string {
	kept := strings.TrimRight(value, "\n")
	command := "cat "
	if strings.HasPrefix(cut, "\r") {
		command = "head -c " + strconv.Itoa(len(kept)) + " "
	}
	word := path
	if !harmless.MatchString(word) {
		word = quoted(word)
	}
	if strings.HasPrefix(path, "-") {
		word = "./" + word
	}
	return "$(" + command + word + ")" + value[len(kept):]
}
