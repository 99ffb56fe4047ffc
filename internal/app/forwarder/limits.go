package forwarder

import (
	"time"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/forward/pacing"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/worker"
)

// limitStop is what giving back a lease may take; without it, it is lost, which others notice for a moment.
const limitStop = time.Second

// newLimit makes the rate limit of a route; nil: it has none.
func newLimit(s *app.Setup, st *store.Store, r *route.Route) worker.Limit {
	if r.RateLimit.PerSecond == 0 {
		return nil
	}
	if r.RateLimit.Scope != route.ScopeGlobal {
		return pacing.NewReplica(r.RateLimit)
	}
	g := pacing.NewGlobal(pacing.GlobalConfig{Route: r.Name, Limit: r.RateLimit, Leaser: st, Logger: s.Log.Logger})
	s.Life.Add("rate limit of "+r.Name, limitStop, g.Close)
	return g
}
