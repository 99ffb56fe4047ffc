package forward

import (
	"net/http"
	"strconv"

	"github.com/ferry-forward/ferry/internal/forward/breaker"
	"github.com/ferry-forward/ferry/internal/forward/send"
	"github.com/ferry-forward/ferry/internal/forward/verdict"
	"github.com/ferry-forward/ferry/internal/message"
)

// blame tells the breaker what the request came to, and makes a retry a hold where the destination is to blame.
func (d *Deliverer) blame(m *message.Message, del *message.Delivery, resp *send.Response, j *verdict.Judgement) {
	if d.breaker == nil {
		return
	}
	hold := d.breaker.Judge(d.now(), breaker.Result{
		Message: m.ID, First: del.Requests == 0, Last: del.Attempts+1 >= d.route.Retry.MaxAttempts, Trouble: del.OwnSince,
		StartedAt: resp.StartedAt, Answer: answerOf(resp, j), What: what(resp),
	})
	if hold && j.Verdict == message.Retry {
		j.Verdict = message.Hold
		if j.Detail == "" {
			j.Detail = "not counted: the destination is to blame, not the message"
		}
	}
}

// answerOf is what the request says about the destination. A rule knows the application: what it takes for delivered or
// rejected is an answer of a live one, whatever the status.
func answerOf(resp *send.Response, j *verdict.Judgement) breaker.Answer {
	byRule := j.Rule != verdict.NoRule
	switch {
	case j.Verdict == message.Delivered:
		return breaker.Life
	case resp.Status == 0 && !resp.Reached:
		return breaker.NotReached
	case resp.Status == 0:
		return breaker.Unavailable
	case j.Verdict == message.Hold && j.Asked:
		return breaker.Asked
	case j.Verdict == message.Retry, j.Verdict == message.Hold && !byRule && j.Auto == message.Retry:
		return faultOf(resp, j)
	}
	return breaker.Life
}

func faultOf(resp *send.Response, j *verdict.Judgement) breaker.Answer {
	switch resp.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return breaker.Unavailable
	}
	if j.ErrorClass == message.ErrTimeout || j.ErrorClass == message.ErrReset {
		return breaker.Unavailable // the body that the verdict hangs on did not come in whole
	}
	return breaker.Fault
}

// what names an answer for people.
func what(resp *send.Response) string {
	if resp.Status != 0 {
		return "HTTP " + strconv.Itoa(resp.Status)
	}
	return resp.Class.String()
}
