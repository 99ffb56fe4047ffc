package forwarder

import (
	"context"
	"fmt"
	"time"

	"github.com/ferry-forward/ferry/internal/admin"
	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/forward/breaker"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

// breakerLook is how often a breaker is asked whether its evidence has become too old.
const breakerLook = time.Second

// newBreaker makes the breaker of a route and shows each change of it: in the log, the metrics and /readyz, where the
// forwarder stays ready, since another one would fare no better.
func newBreaker(ctx context.Context, s *app.Setup, r *route.Route) *breaker.Breaker {
	b := breaker.New(breaker.Config{
		Enabled: r.Breaker.Enabled, Cooldown: r.Breaker.Cooldown, CooldownMax: r.Breaker.CooldownMax, Concurrency: r.Concurrency,
		Changed: func(c breaker.Change) { tellBreaker(s, r, c) },
	}, time.Now())
	every(ctx, s, "breaker of "+r.Name, breakerLook, func(context.Context) error {
		b.Status(time.Now())
		return nil
	})
	return b
}

func tellBreaker(s *app.Setup, r *route.Route, c breaker.Change) {
	s.Metrics.Breaker(r.Name, c.To)
	note := ""
	if c.To != message.BreakerHealthy {
		note = fmt.Sprintf("route %s: %s since %s: %s", r.Name, c.To, c.At.UTC().Format(time.RFC3339), c.Evidence)
	}
	s.Parts.Note(admin.Routes, "breaker of "+r.Name, note)
	say, text := s.Log.Plain().Warn, "" // each change, also one that comes again
	switch c.To {
	case message.BreakerOpen:
		text = "the destination is down: nothing is sent but a probe now and then, no attempt is burnt"
	case message.BreakerDegraded:
		text = "the destination is degraded: fewer requests at a time, no attempt is burnt"
	case message.BreakerHealthy:
		say, text = s.Log.Plain().Info, "the destination is healthy again"
	}
	say(text, "route", r.Name, "was", c.From.String(), "is", c.To.String(), "evidence", c.Evidence)
}
