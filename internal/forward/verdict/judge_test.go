package verdict_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ferry-forward/ferry/internal/forward/jq"
	"github.com/ferry-forward/ferry/internal/forward/send"
	"github.com/ferry-forward/ferry/internal/forward/verdict"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

func compile(t *testing.T, src string) *jq.Program {
	t.Helper()
	p, err := jq.Compile(src)
	if err != nil {
		t.Fatalf("%s: %v", src, err)
	}
	return p
}

// rule is written when → then, reason.
type rule struct{ when, then, reason string }

func routeWith(t *testing.T, otherwise, errorCode string, rules ...rule) *route.Route {
	t.Helper()
	rt := &route.Route{Name: "r", Retry: route.Retry{RetryAfterMax: time.Hour}}
	rt.Response.Otherwise = message.Verdict(otherwise)
	if errorCode != "" {
		rt.Response.ErrorCode = compile(t, errorCode)
	}
	for _, r := range rules {
		p := compile(t, r.when)
		rt.Response.Rules = append(rt.Response.Rules, route.Rule{When: p, Then: message.Verdict(r.then), Reason: r.reason})
		rt.Response.RulesReadBody = rt.Response.RulesReadBody || p.Reads("body")
	}
	return rt
}

func answer(status int, body string) *send.Response {
	return &send.Response{Status: status, Body: []byte(body), Header: http.Header{}, Reached: true, StartedAt: time.Now()}
}

func with(r *send.Response, name, value string) *send.Response {
	r.Header.Add(name, value)
	return r
}

func broken(r *send.Response, class message.ErrorClass) *send.Response {
	r.BodyClass, r.BodyDetail = class, "the body broke off"
	return r
}

func fault(class message.ErrorClass, reached bool) *send.Response {
	return &send.Response{Class: class, Detail: "why", Reached: reached, StartedAt: time.Now()}
}

func judge(rt *route.Route, resp *send.Response) verdict.Judgement {
	return verdict.Judge(context.Background(), rt, resp, jq.NewEnv(&message.Record{}, jq.EnvOptions{Route: rt.Name}))
}

func TestRules(t *testing.T) {
	t.Parallel()
	isOK := rule{".body.result == 0", "delivered", ""}
	for name, c := range map[string]struct {
		otherwise string
		rules     []rule
		resp      *send.Response
		want      message.Verdict
		rule      int
		detail    string
	}{
		"no rules, 200":            {"", nil, answer(200, `{"errors":true}`), "delivered", -1, ""},
		"no rules, 200, not JSON":  {"", nil, answer(200, `<html>`), "delivered", -1, ""},
		"error inside 200":         {"", []rule{{".body.errors", "retry", "inside"}}, answer(200, `{"errors":true}`), "retry", 0, "inside"},
		"none matches":             {"", []rule{{".body.errors", "retry", ""}}, answer(200, `{}`), "delivered", -1, ""},
		"first match wins":         {"", []rule{{".status == 500", "reject", "a"}, {".status == 500", "delivered", "b"}}, answer(500, ""), "reject", 0, "a"},
		"second match":             {"", []rule{{".status == 1", "reject", "a"}, {".status == 500", "delivered", "b"}}, answer(500, ""), "delivered", 1, "b"},
		"a rule beats auto's hold": {"", []rule{{".status == 429", "reject", ""}}, answer(429, ""), "reject", 0, ""},
		"a rule beats not reached": {"", []rule{{`.error == "dns"`, "reject", ""}}, fault(message.ErrDNS, false), "reject", 0, ""},
		"a rule may hold":          {"", []rule{{".status == 500", "hold", ""}}, answer(500, ""), "hold", 0, ""},
		"otherwise":                {"retry", []rule{isOK}, answer(200, `{"result":1}`), "retry", -1, ""},
		"otherwise, no rules":      {"reject", nil, answer(500, ""), "reject", -1, ""},
		"otherwise and 429":        {"reject", nil, answer(429, ""), "hold", -1, ""},
		"otherwise and 503, asked": {"reject", nil, with(answer(503, ""), "Retry-After", "1"), "hold", -1, ""},
		"otherwise and 503":        {"reject", nil, answer(503, ""), "reject", -1, ""},
		"otherwise, not reached":   {"delivered", nil, fault(message.ErrConnect, false), "hold", -1, ""},
		"otherwise, timeout":       {"reject", nil, fault(message.ErrTimeout, true), "reject", -1, ""},
		"503, garbage asked":       {"", nil, with(answer(503, ""), "Retry-After", "soon"), "retry", -1, ""},
		"503, asked for nothing":   {"", nil, with(answer(503, ""), "Retry-After", "0"), "hold", -1, ""},
		"rule fails":               {"delivered", []rule{isOK}, answer(200, `"text"`), "retry", 0, "response rule 1 could not be evaluated"},
		"rule fails, 400":          {"", []rule{isOK}, answer(400, `<html>`), "retry", 0, "response rule 1 could not be evaluated"},
		"rule fails, later match":  {"", []rule{{".body.a.b", "reject", ""}, {"true", "delivered", ""}}, answer(200, `{"a":1}`), "retry", 0, "rule 1"},
		"second rule fails":        {"", []rule{{"false", "reject", ""}, {`error("x")`, "delivered", ""}}, answer(200, ``), "retry", 1, "rule 2"},
		"rule fails, 429":          {"", []rule{isOK}, answer(429, `<html>`), "hold", 0, "response rule 1 could not be evaluated"},
		"rule too slow":            {"", []rule{{"def f: f; f", "delivered", ""}}, answer(200, ``), "retry", 0, "time limit"},
		"null body in a rule":      {"retry", []rule{isOK}, fault(message.ErrTimeout, true), "retry", -1, ""},
		"status of no answer":      {"", []rule{{".status == null and .headers == {}", "reject", ""}}, fault(message.ErrReset, true), "reject", 0, ""},
		"duration":                 {"", []rule{{".duration_ms < 5", "reject", ""}}, answer(200, ""), "reject", 0, ""},
		"headers in lower case":    {"", []rule{{`.headers["x-result"] == "a, b"`, "reject", ""}}, with(with(answer(200, ""), "X-Result", "a"), "X-Result", "b"), "reject", 0, ""},
		"empty body is text":       {"", []rule{{`.body == ""`, "reject", ""}}, answer(200, ""), "reject", 0, ""},
		"text body":                {"", []rule{{`.body | startswith("ERR")`, "reject", ""}}, answer(200, "ERR 7"), "reject", 0, ""},
		"invalid text body":        {"", []rule{{`.body == "a\uFFFD"`, "reject", ""}}, answer(200, "a\xff"), "reject", 0, ""},
		"big number":               {"", []rule{{`.body.id | tostring == "12345678901234567890"`, "reject", ""}}, answer(200, `{"id":12345678901234567890}`), "reject", 0, ""},
		"no value":                 {"", []rule{{`empty`, "reject", ""}}, answer(200, ""), "delivered", -1, ""},
		"incomplete, rule reads":   {"retry", []rule{isOK}, broken(answer(200, `{"result":0}`), message.ErrIncomplete), "retry", -1, ""},
		"incomplete, rule asks":    {"", []rule{isOK, {`.body == null and .error == "too_large"`, "reject", ""}}, broken(answer(200, `x`), message.ErrTooLarge), "reject", 1, ""},
		"incomplete, not read":     {"", []rule{{".error != null", "reject", ""}}, broken(answer(200, `x`), message.ErrTimeout), "delivered", -1, ""},
		"incomplete, no rules":     {"", nil, broken(answer(204, ``), message.ErrReset), "delivered", -1, ""},
		"redirect":                 {"", nil, answer(302, ""), "retry", -1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := judge(routeWith(t, c.otherwise, "", c.rules...), c.resp)
			if got.Verdict != c.want || got.Rule != c.rule || !strings.Contains(got.Detail, c.detail) || (got.Detail == "") != (c.detail == "") {
				t.Errorf("got %s by rule %d, %q; want %s by rule %d, %q", got.Verdict, got.Rule, got.Detail, c.want, c.rule, c.detail)
			}
		})
	}
}

func TestErrorCode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ program, body, want string }{
		"none":            {"", `{"errcode":4}`, ""},
		"number":          {".body.errcode", `{"errcode":4}`, "4"},
		"number as is":    {".body.errcode", `{"errcode":1.10}`, "1.10"},
		"text":            {".body.errcode", `{"errcode":"998"}`, "998"},
		"null":            {".body.errcode", `{}`, ""},
		"fails":           {".body.errcode", `"text"`, ""},
		"not JSON":        {".body.errcode", `<html>`, ""},
		"several":         {".body.a[]", `{"a":[1,2]}`, ""},
		"object":          {".body", `{"a":"<"}`, `{"a":"<"}`},
		"boolean":         {".body.a", `{"a":false}`, `false`},
		"long":            {".body.a", `{"a":"` + strings.Repeat("粤", 30) + `"}`, strings.Repeat("粤", 21)},
		"NUL":             {".body.a", `{"a":"x\u0000y"}`, "x\uFFFDy"},
		"of the status":   {".status", ``, "200"},
		"with a variable": {"$route", ``, "r"},
	} {
		if got := judge(routeWith(t, "", c.program), answer(200, c.body)); got.ErrorCode != c.want || got.Verdict != message.Delivered {
			t.Errorf("%s: %q, %s; want %q", name, got.ErrorCode, got.Verdict, c.want)
		}
	}
	// An incomplete body has no code, and why stands in the error; the status decides alone.
	got := judge(routeWith(t, "", ".body.errcode"), broken(answer(200, `{"errcode":4}`), message.ErrTooLarge))
	if got.ErrorCode != "" || got.Verdict != message.Delivered || !strings.HasPrefix(got.Error, "too_large: ") {
		t.Errorf("%+v", got)
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	for _, class := range message.ErrorClasses() {
		if got := judge(routeWith(t, "", ""), fault(class, true)).Error; got != class.String()+": why" {
			t.Errorf("%q", got)
		}
	}
	redirect := answer(302, "")
	redirect.Location = "https://h/login"
	reads := routeWith(t, "", "", rule{".body.x", "delivered", ""})
	for want, got := range map[string]verdict.Judgement{
		"":                            judge(routeWith(t, "", ""), answer(500, "oops")),
		"redirect to https://h/login": judge(routeWith(t, "", ""), redirect),
		"incomplete: the body broke off; redirect to https://h/login": judge(reads, broken(redirect, message.ErrIncomplete)),
	} {
		if got.Error != want {
			t.Errorf("%q, want %q", got.Error, want)
		}
	}
}

// Nothing that a destination sends can be more, or other, than the database keeps.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	rt := routeWith(t, "", ".body", rule{".body.x.y == 1", "delivered", strings.Repeat("粤", 1000)})
	for _, text := range []string{
		strings.Repeat("\x00", 5000), strings.Repeat("\xff", 5000), strings.Repeat("粤", 5000), "x" + strings.Repeat("😀", 5000),
		`{"x":{"y":1}}`, `{"x":"` + strings.Repeat("a", 3000) + `"}`, `"` + strings.Repeat(`\u0000`, 3000) + `"`,
		strings.Repeat("[", 20_000),
	} {
		resp := answer(200, text)
		resp.Header.Set("X", text)
		resp.Location, resp.Detail = text, text
		for _, class := range []message.ErrorClass{message.ErrNone, message.ErrReset} {
			resp.Class = class
			j := judge(rt, resp)
			for name, c := range map[string]struct {
				got   string
				limit int
			}{
				"error": {j.Error, verdict.MaxError}, "response": {j.Response, verdict.MaxResponse},
				"code": {j.ErrorCode, verdict.MaxErrorCode}, "detail": {j.Detail, verdict.MaxDetail},
			} {
				if len(c.got) > c.limit || !utf8.ValidString(c.got) || strings.ContainsRune(c.got, 0) {
					t.Errorf("%.20q: %s of %d bytes: %.40q", text, name, len(c.got), c.got)
				}
			}
		}
	}
}

func TestAskedToWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		value  string
		want   time.Duration
	}{
		{429, "3", 3 * time.Second},
		{503, "3", 3 * time.Second},
		{503, "99999999999999", time.Hour},
		{429, "soon", 0},
		{500, "3", 0},
		{200, "3", 0},
		{301, "3", 0},
		{429, "0", 0},
	} {
		if got := judge(routeWith(t, "", ""), with(answer(c.status, ""), "Retry-After", c.value)).RetryAfter; got != c.want {
			t.Errorf("%d with %q: %s, want %s", c.status, c.value, got, c.want)
		}
	}
}

// A process that stops in this moment still judges what came.
func TestJudgeWhenStopped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	rt := routeWith(t, "retry", ".body.code", rule{".body.result == 0", "delivered", ""})
	got := verdict.Judge(ctx, rt, answer(200, `{"result":0,"code":7}`), nil)
	if got.Verdict != message.Delivered || got.ErrorCode != "7" {
		t.Errorf("%+v", got)
	}
}
