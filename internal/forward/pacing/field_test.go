package pacing_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferry-forward/ferry/internal/forward/pacing"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

// line does what the table rate_leases does, with a clock of its own.
type line struct {
	mu      sync.Mutex
	next    time.Time
	skew    time.Duration                        // of its clock
	answer  func() (before, after time.Duration) // how long a statement and its answer are on their way
	down    bool
	asks    []message.LeaseAsk
	at      []time.Time
	granted int
	given   int // back
}

var errDown = errors.New("no route to host")

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func (l *line) Lease(_ context.Context, ask message.LeaseAsk) (message.Lease, error) {
	before, after := time.Millisecond, time.Millisecond
	l.mu.Lock()
	if l.answer != nil {
		before, after = l.answer()
	}
	l.mu.Unlock()
	sent := time.Now()
	time.Sleep(before)
	defer time.Sleep(after)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asks, l.at = append(l.asks, ask), append(l.at, sent)
	if l.down {
		return message.Lease{}, errDown
	}
	now := time.Now().Add(l.skew).Round(0)
	start := l.next
	if ask.Unused.End.Equal(l.next) {
		start = ask.Unused.From
	} else if start.After(now.Add(time.Minute)) {
		start = now
	}
	if idle := now.Add(-seconds(float64(ask.Burst-1) / ask.PerSecond)); start.Before(idle) {
		start = idle
	}
	got := message.Lease{Now: now, Start: start, End: start}
	if start.After(now.Add(ask.Ahead)) {
		got.Wait = start.Sub(now) - ask.Ahead
	} else {
		got.N = min(ask.Most, max(ask.N, int(math.Floor(1.001+now.Sub(start).Seconds()*ask.PerSecond))))
		got.End = start.Add(seconds(float64(got.N) / ask.PerSecond))
	}
	l.granted += got.N
	l.next = got.End
	return got, nil
}

func (l *line) GiveBack(_ context.Context, _ string, u message.Unused) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u.End.Equal(l.next) {
		l.next = u.From
		l.given++
	}
	return nil
}

// process sends as a forwarder does that has enough to send.
type process struct {
	*pacing.Global

	slots   int           // 0: any number
	request time.Duration // how long one takes

	mu     sync.Mutex
	sent   []time.Time
	frozen time.Time // asks nothing before
	stop   chan struct{}
	done   sync.WaitGroup
}

type field struct {
	*testing.T

	line      *line
	limit     route.RateLimit
	log       bytes.Buffer
	processes []*process
	extra     int // requests that may be too many in a second
}

func newField(t *testing.T, perSecond float64, burst int) *field {
	return &field{T: t, line: &line{}, limit: route.RateLimit{PerSecond: perSecond, Burst: burst, Scope: route.ScopeGlobal}}
}

// process starts one.
func (f *field) process(slots int, request time.Duration) *process {
	p := f.idle()
	p.slots, p.request, p.stop = slots, request, make(chan struct{})
	p.done.Go(p.run)
	return p
}

// idle makes one that does nothing by itself.
func (f *field) idle() *process {
	p := &process{
		Global: pacing.NewGlobal(pacing.GlobalConfig{
			Route: "a", Limit: f.limit, Leaser: f.line, Logger: slog.New(slog.NewTextHandler(&f.log, nil)),
		}),
	}
	f.processes = append(f.processes, p)
	return p
}

func (p *process) run() {
	for {
		p.mu.Lock()
		rest := time.Until(p.frozen)
		if rest <= 0 {
			rest = time.Millisecond
			now := time.Now()
			if n := len(p.sent); p.slots == 0 || n < p.slots || now.Sub(p.sent[n-p.slots]) >= p.request {
				var ok bool
				if ok, rest = p.Take(now, 200); ok {
					p.sent = append(p.sent, now)
				}
			}
		}
		p.mu.Unlock()
		select {
		case <-p.stop:
			return
		case <-time.After(rest):
		}
	}
}

// kill ends a process that gives nothing back.
func (p *process) kill() { close(p.stop); p.done.Wait(); p.stop = nil }

func (p *process) freeze(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = time.Now().Add(d)
}

func (f *field) end() {
	for _, p := range f.processes {
		if p.stop != nil {
			p.kill()
		}
		if err := p.Close(f.Context()); err != nil {
			f.Error(err)
		}
	}
}

// times are when requests went out in a time, in order.
func (f *field) times(from, to time.Time) (all []time.Time) {
	for _, p := range f.processes {
		p.mu.Lock()
		for _, at := range p.sent {
			if !at.Before(from) && at.Before(to) {
				all = append(all, at)
			}
		}
		p.mu.Unlock()
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// between is how many requests went out in a time.
func (f *field) between(from, to time.Time) int { return len(f.times(from, to)) }

func (p *process) between(from, to time.Time) int {
	return (&field{processes: []*process{p}}).between(from, to)
}

// within checks the mean rate of a time, and that no second that begins in it has too many.
func (f *field) within(from, to time.Time, low, high float64) {
	f.Helper()
	if got := float64(f.between(from, to)) / to.Sub(from).Seconds(); got < low || got > high {
		f.Errorf("%.2f a second, want %g to %g", got, low, high)
	}
	most := int(1.2*f.limit.PerSecond) + 1 + f.extra
	all := f.times(from, to.Add(time.Second))
	for i, at := range all {
		if i+most < len(all) && all[i+most].Before(at.Add(time.Second)) {
			f.Errorf("more than %d requests in the second from %s on", most, at.Sub(from))
			return
		}
	}
}

// statements checks that no process asked more than ten times in any second.
func (f *field) statements() {
	f.Helper()
	slices.SortFunc(f.line.at, time.Time.Compare)
	most := 10 * len(f.processes)
	for i, at := range f.line.at {
		if i+most < len(f.line.at) && f.line.at[i+most].Before(at.Add(time.Second)) {
			f.Errorf("more than %d statements of %d processes in a second", most, len(f.processes))
			return
		}
	}
}

// bubble runs a test in simulated time.
func bubble(t *testing.T, perSecond float64, burst int, do func(f *field)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newField(t, perSecond, burst)
		do(f)
		f.end()
		f.statements()
	})
}
