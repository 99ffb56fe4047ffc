package forwarder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
)

const (
	replayStepTime  = 10 * time.Second // of one transaction
	replayAwayAfter = 10 * time.Second // how long the database is asked again
	replayAskEvery  = 500 * time.Millisecond
	replayTellEvery = 5 * time.Second        // on what is no terminal
	replayDrawEvery = 100 * time.Millisecond // on a terminal
)

var errReplayStepTime = errors.New("no answer within 10 s")

// confirm asks whether to go on. Ctrl-C is an answer too.
func (r *replaying) confirm(ctx context.Context, p *plan) (bool, error) {
	question := fmt.Sprintf("replay %s (%s)?", r.those(r.matched), byRoute(p.routes))
	if r.flags.status == message.StatusDelivered.String() {
		question = "their destination has had them already: " + question
	}
	answer := make(chan bool, 1)
	go func() { answer <- app.Confirm(r.in, r.notes, question) }() // ends with the process, if nobody answers
	select {
	case yes := <-answer:
		return yes, nil
	case <-ctx.Done():
		r.note("\nnothing was replayed")
		return false, context.Cause(ctx)
	}
}

// work replays step by step, until nothing is left or somebody ends it.
func (r *replaying) work(ctx context.Context, p *plan) error {
	if err := r.persist(ctx, p.begin); err != nil {
		return err
	}
	limit := store.MaxReplayStep
	if r.flags.rate > 0 {
		limit = max(1, min(limit, int(r.flags.rate)))
	}
	bar := newProgress(r.notes, r.matched)
	for finished := false; !finished; {
		if ctx.Err() != nil {
			return r.interrupted(bar, p)
		}
		err := r.persist(ctx, func(ctx context.Context) (err error) {
			var n int
			n, finished, err = p.step(ctx, limit)
			r.replayed += int64(n)
			return err
		})
		if err != nil {
			bar.end()
			return err
		}
		bar.tell(r.replayed)
		if r.flags.rate > 0 && r.replayed < r.matched && !finished {
			due := bar.began.Add(time.Duration(float64(r.replayed) / r.flags.rate * float64(time.Second)))
			select {
			case <-ctx.Done():
			case <-time.After(time.Until(due)):
			}
		}
	}
	bar.end()
	if r.flags.json {
		return r.result()
	}
	if r.matched == 0 && r.replayed == 0 {
		_, err := fmt.Fprintf(r.out, "%s: nothing was replayed\n", r.would(p))
		return printed(err)
	}
	_, err := fmt.Fprintf(r.out, "replayed %d of %s %s\n", r.replayed, r.those(r.matched), bar.speed(r.replayed))
	return printed(err)
}

// interrupted says how to go on. What was asked for was done: the exit code is 0.
func (r *replaying) interrupted(bar *progress, p *plan) error {
	bar.end()
	r.note("stopped: %d of %d messages are replayed; %s", r.replayed, r.matched, p.goOn)
	if r.flags.json {
		return r.result()
	}
	return nil
}

// persist asks the database again while it is away, for ten seconds. Nothing that was begun is broken off by a signal. It
// is safe to ask again after a commit whose answer got lost: what was replayed is not replayed twice, only not counted here.
func (r *replaying) persist(ctx context.Context, do func(context.Context) error) error {
	for began := time.Now(); ; {
		limited, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), replayStepTime, errReplayStepTime)
		err := do(limited)
		cancel()
		var decided *app.ExitError
		if err == nil || errors.As(err, &decided) {
			return err
		}
		var database *store.Error
		if !errors.As(err, &database) || !database.Transient() || ctx.Err() != nil || time.Since(began) > replayAwayAfter {
			return app.Unknown(fmt.Errorf("%w; %d messages are replayed, run the same again to go on", err, r.replayed))
		}
		select {
		case <-ctx.Done():
		case <-time.After(replayAskEvery):
		}
	}
}

// progress tells how far the replay is: a bar on a terminal, else a line now and then.
type progress struct {
	to    io.Writer
	drawn bool
	of    int64
	every time.Duration
	began time.Time
	told  time.Time // last
	line  int       // how long the bar is that stands there now
}

func newProgress(to io.Writer, of int64) *progress {
	b := &progress{to: to, drawn: app.IsTerminal(to), of: of, began: time.Now(), every: replayDrawEvery}
	if !b.drawn {
		b.told, b.every = b.began, replayTellEvery
	}
	return b
}

func (b *progress) tell(n int64) {
	if time.Since(b.told) < b.every {
		return
	}
	b.told = time.Now()
	share := 1.0
	if b.of > 0 {
		share = min(1, float64(n)/float64(b.of))
	}
	speed := float64(n) / max(time.Since(b.began).Seconds(), 0.001)
	text := fmt.Sprintf("%d of %d (%.0f %%), %.0f a second, %.0f s left", n, b.of, 100*share, speed, float64(max(0, b.of-n))/max(speed, 0.001))
	if !b.drawn {
		_, _ = fmt.Fprintln(b.to, "replayed "+text)
		return
	}
	const width = 20
	done := int(share * width)
	text = "[" + strings.Repeat("#", done) + strings.Repeat(".", width-done) + "] " + text
	_, _ = fmt.Fprint(b.to, "\r"+text+strings.Repeat(" ", max(0, b.line-len(text))))
	b.line = len(text)
}

// end takes the bar away.
func (b *progress) end() {
	if b.line > 0 {
		_, _ = fmt.Fprint(b.to, "\r"+strings.Repeat(" ", b.line)+"\r")
		b.line = 0
	}
}

// speed says for how long it has been going, and how fast.
func (b *progress) speed(n int64) string {
	took := time.Since(b.began)
	return fmt.Sprintf("in %.1f s (%.0f a second)", took.Seconds(), float64(n)/max(took.Seconds(), 0.001))
}
