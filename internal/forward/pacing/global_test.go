package pacing_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/forward/pacing"
)

func TestGlobalRates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		perSecond float64
		burst     int
	}{{50, 50}, {50, 10}, {50, 1}, {0.1, 1}, {0.5, 3}, {1, 1}, {4.7, 1}, {9.9, 1}, {10, 10}, {500, 1}, {500, 500}} {
		for _, processes := range []int{1, 3, 7} {
			bubble(t, c.perSecond, c.burst, func(f *field) {
				for range processes {
					f.process(0, 0)
				}
				warm := max(2*time.Second, seconds(3/c.perSecond))
				time.Sleep(warm)
				from := time.Now()
				length := max(20*time.Second, seconds(20/c.perSecond))
				time.Sleep(length)
				slack := 1 / length.Seconds() // one request more or less
				f.within(from, from.Add(length), 0.98*c.perSecond-slack, 1.005*c.perSecond+slack)
				if got := f.between(from.Add(-warm), from); float64(got) > float64(c.burst)+warm.Seconds()*c.perSecond+1 || got < c.burst {
					f.Errorf("%d requests at first, the burst is %d", got, c.burst)
				}
				for i, p := range f.processes {
					if share := float64(p.between(from, from.Add(length))) / float64(f.between(from, from.Add(length))) * float64(processes); c.perSecond >= 10 && (share < 0.25 || share > 2.5) {
						f.Errorf("process %d got %.2f times its share", i, share)
					}
				}
				if f.Failed() {
					f.Errorf("%+v, %d processes", c, processes)
				}
			})
		}
	}
}

// A process dies, and then another: who is left has the whole rate, after what died with them was due.
func TestGlobalDeath(t *testing.T) {
	t.Parallel()
	bubble(t, 50, 50, func(f *field) {
		all := []*process{f.process(0, 0), f.process(0, 0), f.process(0, 0)}
		time.Sleep(3 * time.Second)
		for range 2 {
			all[0].kill()
			all = all[1:]
			killed := time.Now()
			time.Sleep(5 * time.Second)
			f.within(killed, killed.Add(5*time.Second), 48, 50.5)
			if got := f.between(killed, killed.Add(time.Second)); got < 50-2*10 {
				f.Errorf("%d requests in the second after a death", got)
			}
		}
	})
}

// The route was idle: a burst is there at once, and again after the next pause.
func TestGlobalBurst(t *testing.T) {
	t.Parallel()
	bubble(t, 20, 60, func(f *field) {
		time.Sleep(time.Minute)
		p := f.process(0, 0)
		for range 3 {
			from := time.Now()
			time.Sleep(300 * time.Millisecond)
			if got := f.between(from, time.Now()); got < 60 || got > 66 {
				f.Errorf("%d requests in the first 0.3 s, want 60 and what is due by then", got)
			}
			p.freeze(10 * time.Second)
			time.Sleep(10 * time.Second)
		}
	})
}

// Who has a few messages leases as many permits, so that none are kept from others.
func TestGlobalAsksForWhatWaits(t *testing.T) {
	t.Parallel()
	bubble(t, 50, 50, func(f *field) {
		g := f.idle()
		for _, messages := range []int{1, 2, 3, 9, 10, 11, 50, 60} {
			time.Sleep(time.Minute)
			f.line.asks, f.line.granted = nil, 0
			for waiting := messages; waiting > 0; {
				ok, again := g.Take(time.Now(), waiting)
				if ok {
					waiting--
				}
				time.Sleep(again)
			}
			if got := f.line.asks[0]; got.N != min(messages, 10) || got.Most != min(messages, 50) {
				f.Errorf("with %d waiting: asked for %d, %d", messages, got.N, got.Most)
			}
			if f.line.granted != messages {
				f.Errorf("%d permits leased for %d messages", f.line.granted, messages)
			}
		}
	})
}

// Answers that hang, one process that was frozen and clocks that jump: never too many, and soon all again.
func TestGlobalTroubles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		trouble func(f *field)
		lasts   time.Duration // how long fewer may go out
	}{
		"an answer hangs for 3 s": {func(f *field) {
			f.extra = -8 // it is not used at all
			hung := false
			f.line.answer = func() (before, after time.Duration) {
				if !hung {
					hung = true
					return 0, 3 * time.Second
				}
				return time.Millisecond, time.Millisecond
			}
		}, 4 * time.Second},
		"a statement hangs for 3 s": {func(f *field) {
			hung := false
			f.line.answer = func() (before, after time.Duration) {
				if !hung {
					hung = true
					return 3 * time.Second, 0
				}
				return time.Millisecond, time.Millisecond
			}
		}, 4 * time.Second},
		"a process is frozen": {func(f *field) { f.processes[0].freeze(3 * time.Second) }, 4 * time.Second},
		"all are frozen": {func(f *field) {
			for _, p := range f.processes {
				p.freeze(150 * time.Millisecond)
			}
		}, time.Second},
		"the database's clock goes back by an hour": {func(f *field) {
			f.line.skew -= time.Hour
			f.extra = 25 // what was leased by the old clock
		}, 3 * time.Second},
		"the database's clock goes back by 5 s": {func(f *field) { f.line.skew -= 5 * time.Second }, 6 * time.Second},
		"the database's clock goes forward by an hour": {func(f *field) {
			f.line.skew += time.Hour
			f.extra = 25
		}, time.Second},
		"answers take 80 ms from now on": {func(f *field) { f.line.answer = slow(80 * time.Millisecond) }, time.Second},
		"answers take 1 s from now on":   {func(f *field) { f.line.answer = slow(time.Second) }, 5 * time.Second},
	} {
		for _, processes := range []int{1, 3} {
			bubble(t, 50, 1, func(f *field) {
				f.line.skew = 17 * time.Minute
				for range processes {
					f.process(0, 0)
				}
				time.Sleep(3 * time.Second)
				from := time.Now()
				f.line.mu.Lock()
				c.trouble(f)
				f.line.mu.Unlock()
				time.Sleep(c.lasts + 10*time.Second)
				f.within(from, from.Add(c.lasts), 0, 70)
				f.within(from.Add(c.lasts), from.Add(c.lasts+10*time.Second), 47, 50.2)
				if f.Failed() {
					f.Errorf("%s, %d processes", name, processes)
				}
			})
		}
	}
}

func slow(d time.Duration) func() (before, after time.Duration) {
	return func() (before, after time.Duration) { return d / 2, d / 2 }
}

// A process that has no slots for what it leases leases less, and leaves the rest to others.
func TestGlobalSlots(t *testing.T) {
	t.Parallel()
	bubble(t, 50, 1, func(f *field) {
		poor := f.process(1, 200*time.Millisecond) // five a second
		f.process(0, 0)
		time.Sleep(5 * time.Second)
		from := time.Now()
		time.Sleep(20 * time.Second)
		f.within(from, time.Now(), 42, 50.2)
		if got := poor.between(from, time.Now()); got < 60 {
			f.Errorf("the one with few slots sent %d in 20 s", got)
		}
	})
}

// Without the database nothing is sent; it is asked rarely, and the log has a line for each change.
func TestGlobalDatabaseAway(t *testing.T) {
	t.Parallel()
	bubble(t, 50, 10, func(f *field) {
		f.process(0, 0)
		time.Sleep(3 * time.Second)
		f.line.mu.Lock()
		f.line.down = true
		f.line.asks = nil
		f.line.mu.Unlock()
		time.Sleep(time.Second)
		from := time.Now()
		time.Sleep(time.Minute)
		if n := f.between(from, time.Now()); n > 0 {
			f.Errorf("%d requests without a lease", n)
		}
		f.line.mu.Lock()
		if n := len(f.line.asks); n < 25 || n > 45 {
			f.Errorf("%d statements in a minute", n)
		}
		f.line.down = false
		f.line.mu.Unlock()
		time.Sleep(3 * time.Second)
		from = time.Now()
		time.Sleep(10 * time.Second)
		f.within(from, time.Now(), 49, 50.2)
		if got := f.log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "no route to host") ||
			!strings.Contains(got, "leased again") {
			f.Errorf("the log:\n%s", got)
		}
	})
}

// What is left when a process stops, or its messages are gone, is there for the others.
func TestGlobalGivesBack(t *testing.T) {
	t.Parallel()
	take := func(g *pacing.Global) {
		for ok := false; !ok; {
			var again time.Duration
			ok, again = g.Take(time.Now(), 100)
			time.Sleep(again)
		}
	}
	bubble(t, 0.1, 3, func(f *field) {
		p := f.idle()
		take(p.Global)
		time.Sleep(time.Second) // two are left, and are too old now
		from := time.Now()
		take(p.Global)
		take(p.Global)
		if took := time.Since(from); took > time.Second {
			f.Errorf("what was not used came after %s", took)
		}
	})
	bubble(t, 50, 1, func(f *field) {
		p := f.idle()
		take(p.Global)
		if err := p.Close(f.Context()); err != nil || f.line.given != 1 {
			f.Errorf("%v; given back: %d", err, f.line.given)
		}
		if ok, again := p.Take(time.Now(), 1); ok || again <= 0 {
			f.Errorf("after Close: %t, %s", ok, again)
		}
	})
}

// Close ends while the database does not answer.
func TestGlobalCloseWithoutDatabase(t *testing.T) {
	t.Parallel()
	bubble(t, 50, 1, func(f *field) {
		f.line.answer = slow(20 * time.Second)
		p := f.process(0, 0)
		time.Sleep(100 * time.Millisecond)
		p.kill()
		from := time.Now()
		if err := p.Close(f.Context()); err != nil {
			f.Error(err)
		}
		if took := time.Since(from); took > 21*time.Second {
			t.Errorf("took %s", took)
		}
	})
}
