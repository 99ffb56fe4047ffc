package pacing_test

import (
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/forward/pacing"
	"github.com/ferry-forward/ferry/internal/route"
)

func TestReplica(t *testing.T) {
	t.Parallel()
	for _, l := range []route.RateLimit{
		{PerSecond: 10, Burst: 3}, {PerSecond: 50, Burst: 50}, {PerSecond: 0.5, Burst: 1}, {PerSecond: 0.01, Burst: 1}, {PerSecond: 2000, Burst: 1},
	} {
		r := pacing.NewReplica(l)
		start := time.Now()
		now, taken := start, 0
		for asked := 0; now.Sub(start) <= 400*time.Second && asked < 500_000; asked++ {
			ok, again := r.Take(now, 7)
			if ok {
				if taken++; taken < l.Burst && !now.Equal(start) {
					t.Fatalf("%+v: request %d of a burst had to wait %s", l, taken, now.Sub(start))
				}
				continue
			}
			if again <= 0 {
				t.Fatalf("%+v: ask again after %s", l, again)
			}
			now = now.Add(again)
		}
		passed := now.Sub(start).Seconds()
		if want := max(float64(l.Burst), 1+l.PerSecond/50) + passed*l.PerSecond; float64(taken) > want+0.01 || float64(taken) < want*0.98-2 {
			t.Errorf("%+v: %d requests in %.0f s, want %.1f", l, taken, passed, want)
		}
	}
}
