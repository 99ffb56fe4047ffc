package worker

import (
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/route"
)

// A process was frozen with the database's answer on its way, which says what time it was before. That gives the run no
// time again.
func TestLimitsOnlyComeNearer(t *testing.T) {
	t.Parallel()
	r := &run{
		w:    &Forward{cfg: Config{JobTime: 9 * time.Second, RescueAfter: 24 * time.Second}},
		lane: &lane{route: &route.Route{HTTP: route.HTTP{Timeout: 2 * time.Second}}},
	}
	fetched := time.Now()
	r.setTime(fetched)
	sendBy, late := r.sendBy, r.late
	r.setTime(fetched.Add(time.Hour))
	if !r.sendBy.Equal(sendBy) || !r.late.Equal(late) {
		t.Errorf("later by %s and %s", r.sendBy.Sub(sendBy), r.late.Sub(late))
	}
	r.setTime(fetched.Add(-time.Second))
	if r.sendBy.Sub(sendBy) != -time.Second || r.late.Sub(late) != -time.Second {
		t.Errorf("%s and %s instead of a second earlier", r.sendBy.Sub(sendBy), r.late.Sub(late))
	}
}
