package observe

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxRepeats bounds how many different warnings are told apart. Past it, new ones pass.
	maxRepeats = 1000
	// repeatSweep is how often, at most, counts that are due are said.
	repeatSweep = time.Second
)

// perMessage are the attributes in which lines about one trouble differ from message to message.
var perMessage = []string{"message_id", "message_key", "job_id", "offset", "attempt", "duration", "next_attempt_at", "delay"}

// repeats holds back warnings and errors that were said within the interval, and counts them. There is no goroutine: a
// count that is due is said with the next line of the log, or by flush.
type repeats struct {
	interval time.Duration
	mu       sync.Mutex
	said     map[string]*repeated
	sweepAt  time.Time
}

// repeated is one line that was said, and what came since.
type repeated struct {
	at    time.Time
	count int
	last  slog.Record // of those held back
	next  slog.Handler
}

func newRepeats(interval time.Duration) *repeats {
	return &repeats{interval: interval, said: map[string]*repeated{}}
}

// hold says whether a line is to be held back.
func (r *repeats) hold(key string, record slog.Record, next slog.Handler) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, found := r.said[key]
	if !found {
		if len(r.said) < maxRepeats {
			r.said[key] = &repeated{at: record.Time, next: next}
		}
		return false
	}
	if record.Time.Sub(one.at) >= r.interval && one.count == 0 {
		one.at = record.Time
		return false
	}
	one.count++
	one.last, one.next = record.Clone(), next
	return true
}

// flush says the counts that are due at now, all of them for the zero time.
func (r *repeats) flush(now time.Time) {
	var due []*repeated
	r.mu.Lock()
	if now.IsZero() || !now.Before(r.sweepAt) {
		r.sweepAt = now.Add(repeatSweep)
		for key, one := range r.said {
			if !now.IsZero() && now.Sub(one.at) < r.interval {
				continue
			}
			delete(r.said, key)
			if one.count > 0 {
				due = append(due, one)
				if !now.IsZero() { // said now: what follows is held back again
					r.said[key] = &repeated{at: now, next: one.next}
				}
			}
		}
	}
	r.mu.Unlock()
	slices.SortFunc(due, func(a, b *repeated) int { return a.last.Time.Compare(b.last.Time) })
	for _, one := range due {
		one.last.AddAttrs(slog.Int("repeated", one.count))
		_ = one.next.Handle(context.Background(), one.last) // a log that can't be written has nobody to tell
	}
}

// repeatHandler passes on what repeats does not hold back.
type repeatHandler struct {
	next    slog.Handler
	repeats *repeats
	with    string // the attributes and groups so far, as a part of the key
}

func (h *repeatHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *repeatHandler) Handle(ctx context.Context, r slog.Record) error {
	h.repeats.flush(r.Time)
	if r.Level >= slog.LevelWarn {
		var key strings.Builder
		key.WriteString(r.Level.String() + "\x00" + r.Message + "\x00" + h.with)
		r.Attrs(func(a slog.Attr) bool {
			addKey(&key, a)
			return true
		})
		if h.repeats.hold(key.String(), r, h.next) {
			return nil
		}
	}
	return h.next.Handle(ctx, r)
}

func (h *repeatHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var with strings.Builder
	with.WriteString(h.with)
	for _, a := range attrs {
		addKey(&with, a)
	}
	return &repeatHandler{next: h.next.WithAttrs(attrs), repeats: h.repeats, with: with.String()}
}

func (h *repeatHandler) WithGroup(name string) slog.Handler {
	return &repeatHandler{next: h.next.WithGroup(name), repeats: h.repeats, with: h.with + name + "\x00"}
}

func addKey(b *strings.Builder, a slog.Attr) {
	if !slices.Contains(perMessage, a.Key) {
		b.WriteString(a.Key + "=" + a.Value.Resolve().String() + "\x00")
	}
}
