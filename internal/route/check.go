package route

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

func itoa(n int) string { return strconv.Itoa(n) }

// finish fills in the defaults that depend on other fields and reports fields that contradict each other.
func (p *parser) finish(r *Route) {
	if _, set := r.set["http.connect_timeout"]; !set {
		r.HTTP.ConnectTimeout = min(r.HTTP.ConnectTimeout, r.HTTP.Timeout)
	}
	if r.HTTP.MaxIdleConns == 0 {
		r.HTTP.MaxIdleConns = r.Concurrency
	}
	r.Response.RulesReadBody = slices.ContainsFunc(r.Response.Rules, func(rule Rule) bool { return rule.When.Reads("body") })

	p.notBelow(r, limit{"retry.max", r.Retry.Max}, limit{"retry.initial", r.Retry.Initial})
	p.notBelow(r, limit{"retry.max_age", r.Retry.MaxAge}, limit{"retry.initial", r.Retry.Initial})
	p.notBelow(r, limit{"http.timeout", r.HTTP.Timeout}, limit{"http.connect_timeout", r.HTTP.ConnectTimeout})
	p.breaker(r)
	p.idempotencyHeader(r)
	p.rateLimit(r)
}

type limit struct {
	path string
	is   time.Duration
}

// notBelow reports a duration that is below another that it must not be below.
func (p *parser) notBelow(r *Route, high, low limit) {
	if high.is >= low.is {
		return
	}
	at, set := r.set[high.path]
	if !set {
		at, set = r.set[low.path]
	}
	if !set { // the defaults do not contradict each other
		return
	}
	describe := func(l limit) string {
		if _, set := r.set[l.path]; !set {
			return fmt.Sprintf("%s (%s, the default)", l.path, plain(l.is))
		}
		return fmt.Sprintf("%s (%s)", l.path, plain(l.is))
	}
	p.fault(at.node, at.at, fmt.Sprintf("%s is shorter than %s; change one of them", describe(high), describe(low)))
}

// idempotencyHeader reports a header of the request that Ferry sets itself.
func (p *parser) idempotencyHeader(r *Route) {
	headers, ok := r.set["request.headers"]
	if !ok {
		return
	}
	for _, e := range headers.node.entries {
		if strings.EqualFold(e.key, r.Request.IdempotencyHeader) {
			p.fault(e.at, join(headers.at, e.key), "is the idempotency header, which Ferry sets; remove it, or give request.idempotency_header another name")
		}
	}
}
