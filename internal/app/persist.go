package app

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	awayAfter = 10 * time.Second // how long a command waits for the database, and for Kafka
	oneAsk    = 3 * time.Second  // of one question
	tryEvery  = 500 * time.Millisecond
)

var (
	errAwayAfter = errors.New("away for 10 s")
	errOneAsk    = errors.New("no answer within 3 s")
	errStopped   = errors.New("stopped by a signal before anything was done")
)

// Persist asks again and again until there is an answer, for 10 s at most. An error with an exit code is an answer. Whom
// is who is asked, and setting the one that says where it is.
func Persist(ctx context.Context, whom, setting string, ask func(context.Context) error) error {
	limited, cancel := context.WithTimeoutCause(ctx, awayAfter, errAwayAfter)
	defer cancel()
	var last error
	for {
		err := once(limited, ask)
		var decided *ExitError
		if err == nil || errors.As(err, &decided) {
			return err
		}
		if last == nil || limited.Err() == nil { // else it says no more than that the time is over
			last = err
		}
		select {
		case <-limited.Done():
			if ctx.Err() != nil {
				return Unknown(errStopped)
			}
			return Unknown(fmt.Errorf("%s was %w: %w; check %s, then run the same again", whom, errAwayAfter, last, setting))
		case <-time.After(tryEvery):
		}
	}
}

func once(ctx context.Context, ask func(context.Context) error) error {
	limited, cancel := context.WithTimeoutCause(ctx, oneAsk, errOneAsk)
	defer cancel()
	err := ask(limited)
	if cause := context.Cause(limited); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w; %w", err, cause)
	}
	return err
}
