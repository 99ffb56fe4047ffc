package demo

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// screen is where the show goes: lines, and on a terminal one live line below them that is drawn again and again.
type screen struct {
	out   io.Writer
	live  bool
	width int // columns; a longer line could not be drawn again. 0: unknown

	mu    sync.Mutex
	drawn bool // the live line is on the screen
	last  time.Time
}

const (
	clearLine   = "\r\x1b[K"
	plainEvery  = 2 * time.Second // how often the live line is said where it can't be drawn again
	redrawEvery = 200 * time.Millisecond
)

// say prints a line. That nobody reads it any more is no reason to stop.
func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	_, _ = fmt.Fprintf(s.out, format+"\n", args...)
}

// status draws the live line, or without a terminal says it from time to time.
func (s *screen) status(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live {
		if runes := []rune(line); s.width > 0 && len(runes) >= s.width {
			line = string(runes[:s.width-1])
		}
		_, _ = io.WriteString(s.out, clearLine+line)
		s.drawn = true
		return
	}
	if time.Since(s.last) >= plainEvery {
		s.last = time.Now()
		_, _ = io.WriteString(s.out, line+"\n")
	}
}

// settle leaves the live line as it is and goes below it.
func (s *screen) settle(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	_, _ = io.WriteString(s.out, line+"\n")
}

func (s *screen) wipe() {
	if s.drawn {
		_, _ = io.WriteString(s.out, clearLine)
		s.drawn = false
	}
}
