package jq

import "strings"

// scanner walks over jq text just closely enough to tell words, strings and comments apart.
type scanner struct {
	src string
	pos int
}

// code walks over program text up to an unmatched closing parenthesis, at which it stays, or the end. It says whether
// it found that parenthesis. Each word ($name, @name, .name, name) is shown to word with its offset.
func (s *scanner) code(word func(text string, at int)) bool {
	depth := 0
	for s.pos < len(s.src) {
		c := s.src[s.pos]
		switch {
		case c == '"':
			s.pos++
			s.str(word)
			continue
		case c == '#':
			s.comment()
			continue
		case c == '(':
			depth++
		case c == ')':
			if depth == 0 {
				return true
			}
			depth--
		case wordStart(c):
			start := s.pos
			s.pos++
			for s.pos < len(s.src) && wordPart(s.src[s.pos]) {
				s.pos++
			}
			word(s.src[start:s.pos], start)
			continue
		}
		s.pos++
	}
	return false
}

// str walks over a string literal from behind its opening quote to behind its closing one.
func (s *scanner) str(word func(text string, at int)) {
	for s.pos < len(s.src) {
		switch s.src[s.pos] {
		case '"':
			s.pos++
			return
		case '\\':
			s.pos++
			if s.pos < len(s.src) && s.src[s.pos] == '(' {
				s.pos++
				s.code(word)
			}
		}
		s.pos++
	}
}

// comment walks to the end of the line; a backslash before it carries the comment on.
func (s *scanner) comment() {
	for s.pos < len(s.src) && s.src[s.pos] != '\n' && s.src[s.pos] != '\r' {
		if s.src[s.pos] == '\\' {
			s.pos++
			if strings.HasPrefix(s.src[min(s.pos, len(s.src)):], "\r\n") {
				s.pos++
			}
		}
		s.pos++
	}
	s.pos = min(s.pos, len(s.src))
}

func wordStart(c byte) bool { return c == '$' || c == '@' || c == '.' || letter(c) }

func wordPart(c byte) bool { return letter(c) || '0' <= c && c <= '9' }

func letter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' }

// find returns the offset of a word of the program text, 0 when it is not there.
func find(src, word string) int {
	found := -1
	s := scanner{src: src}
	for s.pos < len(src) {
		s.code(func(text string, at int) {
			if found < 0 && text == word {
				found = at
			}
		})
		s.pos++ // behind an unmatched parenthesis, which is somebody else's fault
	}
	return max(found, 0)
}

// position turns an offset into a line and a column, both from 1. Columns count characters.
func position(src string, offset int) (line, column int) {
	head := src[:min(max(offset, 0), len(src))]
	line = 1 + strings.Count(head, "\n")
	return line, 1 + len([]rune(head[strings.LastIndexByte(head, '\n')+1:]))
}
