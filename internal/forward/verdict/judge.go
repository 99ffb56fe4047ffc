package verdict

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ferry-forward/ferry/internal/forward/decode"
	"github.com/ferry-forward/ferry/internal/forward/jq"
	"github.com/ferry-forward/ferry/internal/forward/send"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

// NoRule is Judgement.Rule when no rule decided.
const NoRule = -1

// By says what gave a verdict.
type By string

// What can give a verdict.
const (
	ByRule      By = "rule"      // Judgement.Rule, which held
	ByFault     By = "fault"     // Judgement.Rule, which could not be evaluated
	ByOtherwise By = "otherwise" // the route's response.otherwise
	ByAuto      By = "auto"      // the status alone, or that there is none
)

// Judgement is what an attempt comes to. All text is clean and within its size.
type Judgement struct {
	Verdict message.Verdict
	By      By
	Rule    int    // index of the rule that decided, NoRule when none did
	Detail  string // the rule's own reason, or why a rule could not be evaluated
	// RuleErr is why the rule could not be evaluated, CodeErr why error_code could not; nil when they could. They are for
	// whoever tries a route: neither is clean.
	RuleErr, CodeErr error

	// ErrorClass is why there is no status, or why the body that somebody wants to look at is not whole.
	ErrorClass message.ErrorClass
	Error      string // begins with ErrorClass; a redirect's target; empty when there is nothing to say
	ErrorCode  string // what the route's error_code found
	Response   string // the beginning of the response body

	// RetryAfter is how long the destination asked to wait, capped; 0: it did not (or for no time). Only of 429 and 503.
	RetryAfter time.Duration
	// Asked says that the destination asks to wait: 429, or 503 with a valid Retry-After.
	Asked bool
	// Auto is what the status alone comes to.
	Auto message.Verdict
}

// ReadsBody says whether anything looks at the body of the route's responses.
func ReadsBody(r *route.Response) bool {
	return r.RulesReadBody || r.ErrorCode != nil && r.ErrorCode.Reads("body")
}

// Judge gives the verdict. The rules run to their end even when ctx is cancelled: the request was made, and what came of
// it must not be lost.
func Judge(ctx context.Context, rt *route.Route, resp *send.Response, env *jq.Env) Judgement {
	ctx = context.WithoutCancel(ctx)
	j := Judgement{
		Rule:     NoRule,
		Response: excerpt(resp.Body),
	}
	j.ErrorClass, j.Error = trouble(&rt.Response, resp)
	wait, asked := askedToWait(resp)
	j.RetryAfter, j.Asked = wait, asked || resp.Status == http.StatusTooManyRequests
	j.Auto = Auto(resp, asked)
	if limit := rt.Retry.RetryAfterMax; limit > 0 {
		j.RetryAfter = min(wait, limit)
	}
	input := answer(&rt.Response, resp)
	j.byRules(ctx, &rt.Response, input, env)
	if j.Verdict == "" {
		j.byDefault(rt.Response.Otherwise, j.Auto)
	}
	j.ErrorCode, j.CodeErr = errorCode(ctx, rt.Response.ErrorCode, input, env)
	return j
}

// byRules lets the first rule decide that holds. One that can't be evaluated leaves no verdict when there is no telling
// what the rules would have said; byDefault knows that from Detail.
func (j *Judgement) byRules(ctx context.Context, r *route.Response, input map[string]any, env *jq.Env) {
	for i, rule := range r.Rules {
		holds, err := rule.When.Truth(ctx, input, env)
		if err != nil {
			j.Rule, j.RuleErr = i, err
			j.Detail = message.Clean(fmt.Sprintf("response rule %d could not be evaluated: %v", i+1, err), MaxDetail)
			return
		}
		if holds {
			j.Rule, j.By, j.Verdict, j.Detail = i, ByRule, rule.Then, message.Clean(rule.Reason, MaxDetail)
			return
		}
	}
}

// byDefault decides where no rule did. A wait that the destination asked for, or its absence, costs no attempt whatever
// `otherwise` says, and also when a rule could not be evaluated: rules are written with answers in mind that came from
// the application. Apart from that, a rule that could not be evaluated means retry, never success.
func (j *Judgement) byDefault(otherwise, auto message.Verdict) {
	switch {
	case auto == message.Hold:
		j.Verdict, j.By = message.Hold, ByAuto
	case j.Rule != NoRule:
		j.Verdict, j.By = message.Retry, ByFault
	case otherwise != "":
		j.Verdict, j.By = otherwise, ByOtherwise
	default:
		j.Verdict, j.By = auto, ByAuto
	}
}

// answer is what rules and error_code see.
func answer(r *route.Response, resp *send.Response) map[string]any {
	if len(r.Rules) == 0 && r.ErrorCode == nil {
		return nil
	}
	in := map[string]any{
		"status": nil, "headers": headers(resp.Header), "body": nil, "error": nil,
		"duration_ms": int(resp.Duration.Milliseconds()),
	}
	if resp.Status != 0 {
		in["status"] = resp.Status
	}
	class := resp.Class
	if class == message.ErrNone && r.RulesReadBody {
		class = resp.BodyClass
	}
	if class != message.ErrNone {
		in["error"] = class.String()
	}
	if resp.Status != 0 && resp.BodyClass == message.ErrNone && ReadsBody(r) {
		in["body"] = body(resp.Body)
	}
	return in
}

// headers has lower-case names, since HTTP does not tell cases apart and jq does.
func headers(h http.Header) map[string]any {
	out := make(map[string]any, len(h))
	for name, values := range h {
		out[strings.ToLower(name)] = strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
	}
	return out
}

func body(b []byte) any {
	if v, err := (decode.Format{Type: decode.JSON}).Value(b); err == nil {
		return v
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

func errorCode(ctx context.Context, p *jq.Program, input map[string]any, env *jq.Env) (string, error) {
	if p == nil {
		return "", nil
	}
	v, err := p.One(ctx, input, env)
	if err != nil || v == nil {
		return "", err
	}
	if text, ok := jq.Text(v); ok {
		return message.Clean(text, MaxErrorCode), nil
	}
	text, err := jq.Marshal(v)
	return message.Clean(string(text), MaxErrorCode), err
}

// trouble says what went wrong beneath the status: why there is none, why the body that somebody wants to look at is not
// whole, where a redirect leads.
func trouble(r *route.Response, resp *send.Response) (message.ErrorClass, string) {
	class, detail := resp.Class, resp.Detail
	if class == message.ErrNone && ReadsBody(r) {
		class, detail = resp.BodyClass, resp.BodyDetail
	}
	var parts []string
	if class != message.ErrNone {
		parts = append(parts, class.String()+": "+detail)
	}
	if resp.Location != "" {
		parts = append(parts, "redirect to "+resp.Location)
	}
	return class, message.Clean(strings.Join(parts, "; "), MaxError)
}

func askedToWait(resp *send.Response) (time.Duration, bool) {
	if resp.Status != http.StatusTooManyRequests && resp.Status != http.StatusServiceUnavailable {
		return 0, false
	}
	return retryAfter(resp.Header, resp.StartedAt.Add(resp.Duration))
}
