package pacing_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/forward/pacing"
	"github.com/ferry-forward/ferry/internal/route"
)

var defaults = route.Retry{
	MaxAttempts: 5, Initial: 5 * time.Second, Multiplier: 2, Max: 300 * time.Second, Jitter: 0.2,
	MaxAge: 72 * time.Hour, RetryAfterMax: time.Hour,
}

const (
	least  = 0.0
	middle = 0.5
	most   = 0.999999999
)

func fixed(f float64) func() float64 { return func() float64 { return f } }

// near says whether two durations differ by less than a microsecond.
func near(a, b time.Duration) bool { return (a - b).Abs() < time.Microsecond }

func TestBackoff(t *testing.T) {
	t.Parallel()
	huge := defaults
	huge.Initial, huge.Max, huge.Multiplier = math.MaxInt64, math.MaxInt64, 1e300
	shrinking := defaults
	shrinking.Multiplier = 0.5
	wild := defaults
	wild.Jitter = 3
	capped := defaults
	capped.Initial = 500 * time.Second
	for name, c := range map[string]struct {
		retry   route.Retry
		attempt int
		rnd     float64
		want    time.Duration
	}{
		"first":              {defaults, 1, middle, 5 * time.Second},
		"second":             {defaults, 2, middle, 10 * time.Second},
		"third":              {defaults, 3, middle, 20 * time.Second},
		"fourth":             {defaults, 4, middle, 40 * time.Second},
		"seventh, capped":    {defaults, 7, middle, 300 * time.Second},
		"thousandth":         {defaults, 1000, middle, 300 * time.Second},
		"no attempt yet":     {defaults, 0, middle, 5 * time.Second},
		"negative":           {defaults, -3, middle, 5 * time.Second},
		"least":              {defaults, 1, least, 4 * time.Second},
		"most":               {defaults, 1, most, 6 * time.Second},
		"most of the cap":    {defaults, 9, most, 360 * time.Second},
		"initial over max":   {capped, 1, middle, 300 * time.Second},
		"multiplier below 1": {shrinking, 2, middle, 2500 * time.Millisecond},
		"jitter over 1":      {wild, 1, least, 0},
		"overflow":           {huge, 50, most, math.MaxInt64},
		"zero value":         {route.Retry{}, 3, middle, 0},
	} {
		if got := pacing.Backoff(c.retry, c.attempt, fixed(c.rnd)); !near(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestAfterRetryNeverUndercuts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asked time.Duration
		rnd   float64
		want  time.Duration
	}{
		"nothing asked": {0, middle, 5 * time.Second},
		"less asked":    {time.Second, middle, 5 * time.Second},
		"more asked":    {time.Minute, least, time.Minute},
		"jitter adds":   {time.Minute, most, 72 * time.Second},
	} {
		if got := pacing.AfterRetry(defaults, 1, c.asked, fixed(c.rnd)); !near(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestAfterHold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		age, asked time.Duration
		rnd        float64
		want       time.Duration
	}{
		"first fault":             {0, 0, middle, 5 * time.Second},
		"young":                   {6 * time.Second, 0, middle, 5 * time.Second},
		"half its age":            {40 * time.Second, 0, middle, 20 * time.Second},
		"old":                     {3 * time.Hour, 0, middle, 300 * time.Second},
		"clock went back":         {-time.Hour, 0, middle, 5 * time.Second},
		"least":                   {40 * time.Second, 0, least, 16 * time.Second},
		"asked, least":            {3 * time.Hour, 3 * time.Second, least, 3 * time.Second},
		"asked, most":             {0, 10 * time.Second, most, 12 * time.Second},
		"asked for more than max": {0, time.Hour, least, time.Hour},
		"asked for ever":          {0, math.MaxInt64, most, math.MaxInt64},
	} {
		if got := pacing.AfterHold(defaults, c.age, c.asked, fixed(c.rnd)); !near(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Whatever the settings, a wait is never negative, and what was asked for is never undercut.
func TestNeverNegative(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		retry := route.Retry{
			Initial: time.Duration(r.Int64()), Max: time.Duration(r.Int64()),
			Multiplier: r.NormFloat64() * 100, Jitter: r.Float64() * 2,
		}
		asked := time.Duration(r.Int64())
		if got := pacing.Backoff(retry, r.IntN(100)-10, r.Float64); got < 0 {
			t.Fatalf("backoff %s of %+v", got, retry)
		}
		if got := pacing.AfterHold(retry, time.Duration(r.Int64()), asked, r.Float64); got < asked {
			t.Fatalf("hold %s of %+v, asked for %s", got, retry, asked)
		}
	}
}
