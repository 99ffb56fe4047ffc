package jq

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// maxBlameRuns bounds how often Blame runs a program.
const maxBlameRuns = 400

// Blame returns where in the program's text an error comes from that it raised on this input: the offset of the member of
// an object, however deeply nested, with which alone the program raises it; 0, the beginning, where that can't be told. It runs
// parts of the program again and again and is meant for people who try one out.
//
// gojq knows no places at run time. So the members of each object in the text are blanked out, all but one in turn: the
// one that raises the same error by itself, which is not raised without any of them, is to blame.
func (p *Program) Blame(ctx context.Context, input any, env *Env, raised error) int {
	if raised == nil || errors.Is(raised, ErrTimeLimit) {
		return 0
	}
	b := &blamer{message: raised.Error(), runs: maxBlameRuns, raise: func(src string) error {
		q, err := Compile(src)
		if err != nil {
			return nil
		}
		_, err = q.One(ctx, input, env)
		return err
	}}
	return b.within(p.src, -1, len(p.src), 0)
}

type blamer struct {
	message string
	raise   func(src string) error
	runs    int
}

func (b *blamer) raises(src string) bool {
	if b.runs--; b.runs < 0 {
		return false
	}
	err := b.raise(src)
	return err != nil && err.Error() == b.message
}

// within looks at the objects in src[from+1:to]; best is what is to blame so far.
func (b *blamer) within(src string, from, to, best int) int {
	for _, members := range objects(src) {
		first, last := members[0].from, members[len(members)-1].to
		if first <= from || last > to || b.raises(blank(src, first, last)) {
			continue
		}
		for _, m := range members {
			alone := blank(blank(src, first, m.from), m.to, last)
			if b.raises(alone) {
				return b.within(alone, m.from, m.to, m.at)
			}
		}
	}
	return best
}

func blank(src string, from, to int) string {
	return src[:from] + strings.Repeat(" ", to-from) + src[to:]
}

// member is a member of an object, src[from:to] without commas. Its text begins at `at`.
type member struct{ from, to, at int }

// bracket is one that is open, and where the member begins that is being read.
type bracket struct {
	brace bool
	index int // of the object
	from  int
}

// objects returns the members of each {…} of a program that has any, in the order in which the braces open.
func objects(src string) [][]member {
	s := scanner{src: src}
	var open []bracket
	var all [][]member
	end := func() { // of a member
		if len(open) == 0 || !open[len(open)-1].brace {
			return
		}
		o := &open[len(open)-1]
		if at := textBegin(src, o.from); at < s.pos {
			all[o.index] = append(all[o.index], member{o.from, s.pos, at})
		}
		o.from = s.pos + 1
	}
	for s.pos < len(src) {
		switch c := src[s.pos]; c {
		case '"':
			s.pos++
			s.str(func(string, int) {})
			continue
		case '#':
			s.comment()
			continue
		case '{', '(', '[':
			open = append(open, bracket{c == '{', len(all), s.pos + 1})
			if c == '{' {
				all = append(all, nil)
			}
		case ',':
			end()
		case '}', ')', ']':
			if end(); len(open) > 0 {
				open = open[:len(open)-1]
			}
		}
		s.pos++
	}
	return slices.DeleteFunc(all, func(members []member) bool { return len(members) == 0 })
}

// textBegin returns where text begins, from an offset on: behind blanks and comments.
func textBegin(src string, at int) int {
	s := scanner{src: src, pos: at}
	for s.pos < len(src) {
		switch src[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		case '#':
			s.comment()
		default:
			return s.pos
		}
	}
	return s.pos
}
