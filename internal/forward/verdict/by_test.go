package verdict_test

import (
	"net/http"
	"testing"

	"github.com/ferry-forward/ferry/internal/forward/send"
	"github.com/ferry-forward/ferry/internal/forward/verdict"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

// Whoever tries a route is told what decided, and what could not be evaluated.
func TestWhatDecides(t *testing.T) {
	t.Parallel()
	rules := []route.Rule{{When: compile(t, ".status == 200"), Then: message.Reject}, {When: compile(t, ".status.x"), Then: message.Reject}}
	for name, c := range map[string]struct {
		response route.Response
		status   int
		by       verdict.By
		ruleErr  bool
		codeErr  bool
	}{
		"a rule":                 {route.Response{Rules: rules}, 200, verdict.ByRule, false, false},
		"one that fails":         {route.Response{Rules: rules, Otherwise: message.Delivered}, 201, verdict.ByFault, true, false},
		"one that fails, a wait": {route.Response{Rules: rules}, 429, verdict.ByAuto, true, false},
		"otherwise":              {route.Response{Rules: rules[:1], Otherwise: message.Retry}, 201, verdict.ByOtherwise, false, false},
		"otherwise, but a wait":  {route.Response{Otherwise: message.Retry}, 429, verdict.ByAuto, false, false},
		"auto":                   {route.Response{Rules: rules[:1]}, 201, verdict.ByAuto, false, false},
		"error_code fails":       {route.Response{ErrorCode: compile(t, ".status.x")}, 201, verdict.ByAuto, false, true},
		"error_code of nothing":  {route.Response{ErrorCode: compile(t, ".nothing")}, 201, verdict.ByAuto, false, false},
	} {
		j := verdict.Judge(t.Context(), &route.Route{Response: c.response}, &send.Response{Status: c.status, Header: http.Header{}, Reached: true}, nil)
		if j.By != c.by || (j.RuleErr != nil) != c.ruleErr || (j.CodeErr != nil) != c.codeErr || j.ErrorCode != "" {
			t.Errorf("%s: %+v", name, j)
		}
	}
}
