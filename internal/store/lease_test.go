package store_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
)

func (f *fixture) lease(ask message.LeaseAsk) message.Lease {
	f.Helper()
	l, err := f.store.Lease(f.Context(), ask)
	if err != nil {
		f.Fatal(err)
	}
	if l.N > 0 && (l.Wait != 0 || l.End.Sub(l.Start) < time.Duration(float64(l.N)/ask.PerSecond*1e9)-2*time.Microsecond) || l.N == 0 && l.Start != l.End {
		f.Errorf("%+v", l)
	}
	return l
}

const ms = time.Millisecond

// Leases stand one behind the other, and none begins further ahead than asked.
func TestLeaseLine(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	ask := message.LeaseAsk{Route: "a", PerSecond: 10, Burst: 1, N: 2, Most: 2, Ahead: 350 * ms}
	first := f.lease(ask)
	if d := first.Start.Sub(first.Now); first.N != 2 || d != 0 {
		t.Errorf("%+v begins after %s", first, d)
	}
	if d := time.Until(first.Now); d.Abs() > time.Second {
		t.Errorf("the database's now is %s away", d)
	}
	second := f.lease(ask)
	if second.N != 2 || !second.Start.Equal(first.End) {
		t.Errorf("%+v behind %+v", second, first)
	}
	none := f.lease(ask)
	if none.N != 0 || none.Wait <= 0 || none.Wait > 50*ms || !none.Start.Equal(second.End) {
		t.Errorf("%+v behind %+v", none, second)
	}
	other := f.lease(message.LeaseAsk{Route: "b", PerSecond: 1000, Burst: 1, N: 1, Most: 1})
	if other.N != 1 {
		t.Errorf("another route: %+v", other)
	}
	// Another rate, as a version with another route file has it: behind the others, at its own distances.
	ask.PerSecond, ask.Ahead = 4, time.Second
	third := f.lease(ask)
	if third.N != 2 || !third.Start.Equal(second.End) || third.End.Sub(third.Start) != 500*ms {
		t.Errorf("%+v behind %+v", third, second)
	}
}

// After a pause, as long as it may have been, a burst is due at once, and not more.
func TestLeaseBurst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		perSecond        float64
		burst            int
		n, most          int
		idle             string
		granted, dueThen int
	}{
		{50, 50, 10, 200, "1 year", 50, 50},
		{50, 50, 10, 20, "1 year", 20, 20},
		{50, 1, 10, 200, "1 year", 10, 1},
		{50, 10, 10, 10, "1 hour", 10, 10},
		{0.1, 30, 1, 200, "1 hour", 30, 30},
		{0.1, 30, 1, 200, "55 seconds", 6, 6},
		{100000, 100000, 20000, 1000000, "1 year", 100000, 100000},
		{100000, 1, 20000, 1000000, "1 year", 20000, 1},
		{1.0 / 3, 1000, 1, 1000, "1 year", 1000, 1000},
		{3, 50, 1, 1000, "1 year", 50, 50},
	} {
		f := newFixture(t, 1)
		f.exec(`INSERT INTO ferry.rate_leases (route, next_at, leased_at) VALUES ('a', clock_timestamp() - $1::text::interval, now())`, c.idle)
		l := f.lease(message.LeaseAsk{Route: "a", PerSecond: c.perSecond, Burst: c.burst, N: c.n, Most: c.most})
		due := 0
		for i := range l.N {
			if at := l.Start.Add(time.Duration(float64(i) / c.perSecond * float64(time.Second))); at.Sub(l.Now) < 5*time.Microsecond {
				due++
			}
		}
		if l.N != c.granted || due != c.dueThen {
			t.Errorf("%+v: granted %d, of which %d are due", c, l.N, due)
		}
	}
}

// Many ask at once: no time is leased twice, and all times are used.
func TestLeaseConcurrency(t *testing.T) {
	t.Parallel()
	const rate, leasers = 1000, 8
	f := newFixture(t, 1)
	var mu sync.Mutex
	var leases []message.Lease
	var all sync.WaitGroup
	begin := time.Now()
	for i := range leasers {
		s := open(t, store.Config{URL: f.url})
		all.Go(func() {
			for time.Since(begin) < 3*time.Second {
				l, err := s.Lease(t.Context(), message.LeaseAsk{Route: "a", PerSecond: rate, Burst: 1, N: 3 + i, Most: 3 + i, Ahead: 100 * ms})
				if err != nil {
					t.Error(err)
					return
				}
				if l.N > 0 {
					mu.Lock()
					leases = append(leases, l)
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	slices.SortFunc(leases, func(a, b message.Lease) int { return a.Start.Compare(b.Start) })
	granted, gaps := 0, time.Duration(0)
	for i, l := range leases {
		granted += l.N
		if i == 0 {
			continue
		}
		gap := l.Start.Sub(leases[i-1].End)
		if gap < -2*time.Microsecond {
			t.Fatalf("%+v overlaps %+v", l, leases[i-1])
		}
		gaps += max(0, gap)
	}
	length := leases[len(leases)-1].End.Sub(leases[0].Start)
	if want := (length - gaps).Seconds() * rate; float64(granted) > want+1 || float64(granted) < want-1 {
		t.Errorf("%d permits in %s, want %.0f", granted, length, want)
	}
	if gaps > length/10 {
		t.Errorf("nobody had %s of %s", gaps, length)
	}
}

// A lease that had to wait for another one is made when its turn came, not when it was asked for.
func TestLeaseWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	ask := message.LeaseAsk{Route: "a", PerSecond: 50, Burst: 1, N: 1, Most: 1}
	f.lease(ask)
	tx, err := f.store.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), "UPDATE ferry.rate_leases SET next_at = next_at"); err != nil {
		t.Fatal(err)
	}
	got := make(chan message.Lease)
	go func() { got <- f.lease(ask) }()
	f.eventually("the lease waits", func() bool {
		return f.value("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == "1"
	})
	var before time.Time
	if err := tx.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&before); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := <-got; l.N != 1 || l.Now.Before(before) || l.Start.Before(before) {
		t.Errorf("%+v was made before %s", l, before)
	}
}

// What is given back is leased next, unless somebody was faster.
func TestLeaseGivenBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	ask := message.LeaseAsk{Route: "a", PerSecond: 1, Burst: 1, N: 5, Most: 5, Ahead: time.Minute}
	first := f.lease(ask)
	left := message.Unused{From: first.Start.Add(2 * time.Second), End: first.End}
	if err := f.store.GiveBack(t.Context(), "a", left); err != nil {
		t.Fatal(err)
	}
	second := f.lease(ask)
	if !second.Start.Equal(left.From) {
		t.Errorf("%+v after %+v was given back", second, left)
	}
	ask.Unused = message.Unused{From: second.Start.Add(time.Second), End: second.End}
	third := f.lease(ask)
	if !third.Start.Equal(ask.Unused.From) {
		t.Errorf("%+v after %+v was given back", third, ask.Unused)
	}
	if again := f.lease(ask); !third.End.Equal(second.End.Add(time.Second)) || !again.Start.Equal(third.End) {
		t.Errorf("%+v after %+v was given back twice", again, ask.Unused)
	}
	if err := f.store.GiveBack(t.Context(), "a", left); err != nil {
		t.Fatal(err)
	}
	ask.Unused = message.Unused{}
	if l := f.lease(ask); !l.Start.Equal(third.End.Add(5 * time.Second)) {
		t.Errorf("%+v: what others had leased meanwhile was given out again", l)
	}
}

// A clock that was set back leaves a time that is far away: it does not stop the route.
func TestLeaseClockSetBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	f.exec(`INSERT INTO ferry.rate_leases (route, next_at, leased_at) VALUES ('a', clock_timestamp() + interval '1 hour', now())`)
	if l := f.lease(message.LeaseAsk{Route: "a", PerSecond: 50, Burst: 1, N: 5, Most: 5}); l.N != 5 || !l.Start.Equal(l.Now) {
		t.Errorf("%+v", l)
	}
}

// Leasing does not wait for the disk, and what was set for it does not stay.
func TestLeaseCommit(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	s := open(t, store.Config{URL: f.url, MaxConns: 1})
	if _, err := s.Lease(t.Context(), message.LeaseAsk{Route: "a", PerSecond: 50, Burst: 1, N: 1, Most: 1}); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckDurability(t.Context()); err != nil {
		t.Error(err)
	}
}
