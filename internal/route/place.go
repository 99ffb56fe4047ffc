package route

import (
	"strings"
	"unicode/utf8"
)

// span is a piece of expanded text: text[start:end] stands for raw[from:] of the scalar.
type span struct {
	start, end int
	from       int
	whole      bool // it stands for a ${…} as a whole, so that only its beginning has a place in the file
}

// spanAt returns the index of the span that an offset of the expanded text is in, -1 when there are none.
func spanAt(spans []span, offset int) int {
	for i, s := range spans {
		if offset < s.end {
			return i
		}
	}
	return len(spans) - 1
}

// rawOffset returns the offset in the file's text of an offset in the expanded text.
func rawOffset(spans []span, offset int) int {
	i := spanAt(spans, offset)
	switch {
	case i < 0:
		return offset
	case spans[i].whole:
		return spans[i].from
	}
	return spans[i].from + offset - spans[i].start
}

// place returns where in the file an offset of the scalar's raw text is. What can't be told exactly (text folded over
// several lines) is at the scalar's beginning.
func (p *parser) place(n *node, offset int) (line, column int) {
	head := n.raw[:min(max(offset, 0), len(n.raw))]
	switch n.style {
	case styleLiteral, styleFolded:
		return p.placeInBlock(n, head)
	case stylePlain:
		if n.line <= len(p.lines) && strings.HasPrefix(fromColumn(p.lines[n.line-1], n.column), n.raw) {
			return n.line, n.column + utf8.RuneCountInString(head)
		}
	case styleSingle, styleDouble:
		if n.line <= len(p.lines) {
			if width, ok := quotedWidth(fromColumn(p.lines[n.line-1], n.column), head); ok {
				return n.line, n.column + width
			}
		}
	}
	return n.line, n.column
}

func fromColumn(line string, column int) string {
	for range column - 1 {
		_, size := utf8.DecodeRuneInString(line)
		line = line[size:]
	}
	return line
}

func (p *parser) placeInBlock(n *node, head string) (line, column int) {
	first := n.line // index of the first line of the text
	for first < len(p.lines) && strings.TrimSpace(p.lines[first]) == "" {
		first++
	}
	text := strings.TrimLeft(n.raw, "\n")
	if first >= len(p.lines) || text == "" {
		return n.line, n.column
	}
	blanks := func(s string) int { return len(s) - len(strings.TrimLeft(s, " ")) }
	indent := blanks(p.lines[first]) - blanks(text)
	if n.style == styleFolded {
		return first + 1, indent + 1
	}
	return n.line + 1 + strings.Count(head, "\n"), indent + 1 + utf8.RuneCountInString(head[strings.LastIndexByte(head, '\n')+1:])
}

// quotedWidth returns how many characters of the source, which starts with a quote, make up the text head; ok is false
// when the source does not say so (it goes on in another line).
func quotedWidth(source, head string) (width int, ok bool) {
	quote := source[:min(1, len(source))]
	if quote != "'" && quote != `"` {
		return 0, false
	}
	rest := source[1:]
	width = 1
	for head != "" {
		if rest == "" {
			return 0, false
		}
		_, size := utf8.DecodeRuneInString(head)
		used := utf8.RuneLen([]rune(rest)[0])
		chars := 1
		switch {
		case quote == "'" && strings.HasPrefix(rest, "''"):
			used, chars = 2, 2
		case quote == `"` && rest[0] == '\\':
			used = escapeLength(rest)
			chars = used
		}
		if used > len(rest) {
			return 0, false
		}
		head, rest, width = head[size:], rest[used:], width+chars
	}
	return width, true
}

// escapeLength is the length of the escape sequence that a double-quoted YAML text goes on with.
func escapeLength(s string) int {
	if len(s) < 2 {
		return len(s)
	}
	switch s[1] {
	case 'x':
		return 4
	case 'u':
		return 6
	case 'U':
		return 10
	}
	return 2
}
