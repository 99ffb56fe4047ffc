package demo

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"time"
)

// Settings say what the demo does.
type Settings struct {
	// Duration is how long events are produced: DEMO_SECONDS, default 20, 1 to 3600.
	Duration time.Duration
	// Rate is how many events are produced a second: DEMO_RATE, default 200, 1 to 5000.
	Rate int
	// Keep leaves everything running until the demo is interrupted: DEMO_KEEP=1.
	Keep bool
	// BinDir holds the binaries ingester and forwarder.
	BinDir string
	// Routes is the route file that the demo takes its routes from.
	Routes string
	// Self is the path of the demo's own binary, which also is the sweeper.
	Self string
	// Out is where the show goes. Live says that it is a terminal, on which a line can be drawn again, and Width is how
	// many columns it has (0: unknown).
	Out   io.Writer
	Live  bool
	Width int
}

// ErrUsage marks errors of whoever started the demo.
var ErrUsage = errors.New("wrong use")

// FromEnv reads DEMO_SECONDS, DEMO_RATE and DEMO_KEEP.
func (s *Settings) FromEnv(getenv func(string) string) error {
	seconds, err := number(getenv, "DEMO_SECONDS", 20, 3600)
	if err != nil {
		return err
	}
	s.Duration = time.Duration(seconds) * time.Second
	if s.Rate, err = number(getenv, "DEMO_RATE", 200, 5000); err != nil {
		return err
	}
	switch v := getenv("DEMO_KEEP"); v {
	case "", "0", "false", "no":
	case "1", "true", "yes":
		s.Keep = true
	default:
		return fmt.Errorf("%w: DEMO_KEEP=%s: set it to 1, or not at all", ErrUsage, v)
	}
	return nil
}

func number(getenv func(string) string, name string, byDefault, atMost int) (int, error) {
	text := getenv(name)
	if text == "" {
		return byDefault, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > atMost {
		return 0, fmt.Errorf("%w: %s=%s: set it to a whole number from 1 to %d", ErrUsage, name, text, atMost)
	}
	return n, nil
}

func (s *Settings) binary(name string) string { return filepath.Join(s.BinDir, name) }
