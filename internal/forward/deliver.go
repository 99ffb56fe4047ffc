package forward

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/ferry-forward/ferry/internal/forward/breaker"
	"github.com/ferry-forward/ferry/internal/forward/jq"
	"github.com/ferry-forward/ferry/internal/forward/pacing"
	"github.com/ferry-forward/ferry/internal/forward/send"
	"github.com/ferry-forward/ferry/internal/forward/verdict"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

// Options of a Deliverer. All may be left out.
type Options struct {
	Logger  *slog.Logger      // takes one debug line for each request that goes out; nil: none
	Version string            // of Ferry, for the User-Agent
	Observe func(reused bool) // is called for each connection that a request gets
	// Breaker judges the destination by the route's results; nil: every fault counts.
	Breaker *breaker.Breaker

	Now  func() time.Time // the clock; default time.Now
	Rand func() float64   // numbers in [0, 1) for jitter; default math/rand
	// Send changes how requests are sent; for tests.
	Send func(*send.Config)
}

// Deliverer delivers the messages of one route. It is safe for concurrent use.
type Deliverer struct {
	route      *route.Route
	client     *send.Client
	breaker    *breaker.Breaker
	log        *slog.Logger
	userAgent  string
	now        func() time.Time
	rand       func() float64
	readsValue bool // something looks at the record's value in order to send it
}

// Result is what came of one attempt.
type Result struct {
	Status  message.Status
	Reason  message.Reason // when failed
	Detail  string         // a rule's own reason, or why there was no request; clean, at most 1 KiB
	Counted bool           // the attempt is one of max_attempts
	// NextAttempt is when a pending message is due again: never later than it expires.
	NextAttempt time.Time
	// Attempt is the request and its outcome; nil when none was made.
	Attempt *message.Attempt
	// Aborted says that the caller's context ended before there was an outcome. Nothing is to be recorded: the message is
	// as it was, and will be sent again.
	Aborted bool
}

// New returns the deliverer of a route. Close it.
func New(rt *route.Route, o Options) *Deliverer {
	d := &Deliverer{
		route: rt, log: o.Logger, breaker: o.Breaker, now: o.Now, rand: o.Rand, userAgent: "ferry",
		readsValue: readsValue(&rt.Request),
	}
	if o.Version != "" {
		d.userAgent += "/" + o.Version
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.now == nil {
		d.now = time.Now
	}
	if d.rand == nil {
		d.rand = rand.Float64
	}
	cfg := send.Config{
		Timeout: rt.HTTP.Timeout, ConnectTimeout: rt.HTTP.ConnectTimeout, MaxResponseBytes: rt.HTTP.MaxResponseBytes,
		MaxConnectionAge: rt.HTTP.MaxConnectionAge, MaxIdleConns: rt.HTTP.MaxIdleConns,
		ReadBody: verdict.ReadsBody(&rt.Response), Observe: o.Observe, Now: o.Now,
	}
	if o.Send != nil {
		o.Send(&cfg)
	}
	d.client = send.New(cfg)
	return d
}

// Close closes the connections. Requests in flight end first.
func (d *Deliverer) Close() { d.client.Close() }

// Deliver makes one attempt at the message, which is pending and owned by the caller.
func (d *Deliverer) Deliver(ctx context.Context, m *message.Message, del *message.Delivery) Result {
	if ctx.Err() != nil {
		return Result{Status: message.StatusPending, Aborted: true}
	}
	if d.Expired(del) {
		return Result{
			Status: message.StatusFailed, Reason: message.Expired,
			Detail: "older than max_age, " + d.route.Retry.MaxAge.String(),
		}
	}
	env := d.env(m, del.Attempts+1)
	req, failure := d.mapWith(ctx, m, env)
	if failure != nil {
		return Result{Status: message.StatusFailed, Reason: failure.Reason, Detail: message.Clean(failure.Error(), verdict.MaxDetail)}
	}
	d.log.Debug("sending", "route", m.Route, "message_id", m.ID, "message_key", m.Key,
		"method", req.Method, "host", req.URL.Host, "bytes", len(req.Body))
	resp := d.client.Do(ctx, req)
	if d.aborted(ctx, resp) {
		return Result{Status: message.StatusPending, Aborted: true}
	}
	j := verdict.Judge(ctx, d.route, resp, env)
	d.blame(m, del, resp, &j)
	return d.result(del, resp, j)
}

// Send sends a request that Map made, once, and returns what came of it. It is what Deliver does between mapping and
// judging, for whoever tries a route: no breaker knows of it, and nothing is counted.
func (d *Deliverer) Send(ctx context.Context, req *send.Request) *send.Response {
	return d.client.Do(ctx, req)
}

// Judge says what Deliver would make of an answer to the attempt (from 1), the breaker aside.
func (d *Deliverer) Judge(ctx context.Context, m *message.Message, attempt int, resp *send.Response) verdict.Judgement {
	return verdict.Judge(ctx, d.route, resp, d.env(m, attempt))
}

// Blame narrows down where in the text of its field a failure of Map comes from, and sets its Offset. It takes its time:
// it is for whoever tries a route.
func (d *Deliverer) Blame(ctx context.Context, m *message.Message, attempt int, f *Failure) {
	if f.Field != bodyField || m.Tombstone() {
		return
	}
	if value, err := d.route.Decode.Value(m.Value); err == nil {
		f.Offset = d.route.Request.Body.Blame(ctx, value, d.env(m, attempt), f.Err)
	}
}

func (d *Deliverer) env(m *message.Message, attempt int) *jq.Env {
	return jq.NewEnv(&m.Record, jq.EnvOptions{
		Route: d.route.Name, MessageKey: m.Key, Attempt: attempt, Vars: d.route.Vars,
	})
}

// aborted says whether we ended the request ourselves before there was something to judge. A status that came in time is
// an outcome, unless a rule wants a body that did not.
func (d *Deliverer) aborted(ctx context.Context, resp *send.Response) bool {
	return resp.Class == message.ErrCanceled ||
		ctx.Err() != nil && resp.BodyClass == message.ErrCanceled && d.route.Response.RulesReadBody
}

func (d *Deliverer) result(del *message.Delivery, resp *send.Response, j verdict.Judgement) Result {
	r := Result{
		Status: message.StatusPending, Detail: j.Detail, Counted: true,
		Attempt: &message.Attempt{
			StartedAt: resp.StartedAt, Duration: resp.Duration, Verdict: j.Verdict, HTTPStatus: resp.Status,
			ErrorClass: j.ErrorClass, ErrorCode: j.ErrorCode, Error: j.Error, Response: j.Response, Detail: j.Detail,
		},
	}
	retry := d.route.Retry
	attempt := del.Attempts + 1
	switch j.Verdict {
	case message.Delivered:
		r.Status = message.StatusDelivered
	case message.Reject:
		r.Status, r.Reason = message.StatusFailed, message.Rejected
	case message.Retry:
		if attempt >= retry.MaxAttempts {
			r.Status, r.Reason = message.StatusFailed, message.Exhausted
			break
		}
		r.NextAttempt = d.next(del, pacing.AfterRetry(retry, attempt, j.RetryAfter, d.rand))
	case message.Hold:
		r.Counted = false
		r.NextAttempt = d.next(del, pacing.AfterHold(retry, d.age(del), j.RetryAfter, d.rand))
	}
	return r
}

// expiry is when the message is too old; zero when it never is.
func (d *Deliverer) expiry(del *message.Delivery) time.Time {
	if d.route.Retry.MaxAge <= 0 || del.DueFrom.IsZero() {
		return time.Time{}
	}
	return del.DueFrom.Add(d.route.Retry.MaxAge)
}

// Expired says whether the message is older than max_age: Deliver fails it without a request.
func (d *Deliverer) Expired(del *message.Delivery) bool {
	expiry := d.expiry(del)
	return !expiry.IsZero() && !d.now().Before(expiry)
}

// next is when a wait is over. A message that expires while it waits runs at that moment, only to be told so.
func (d *Deliverer) next(del *message.Delivery, wait time.Duration) time.Time {
	at := d.now().Add(wait)
	if expiry := d.expiry(del); !expiry.IsZero() && at.After(expiry) {
		return expiry
	}
	return at
}

// age is how long the message's trouble has lasted.
func (d *Deliverer) age(del *message.Delivery) time.Duration {
	if del.OwnSince.IsZero() {
		return 0 // its first fault is this one
	}
	return d.now().Sub(del.OwnSince)
}
