package trial

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ferry-forward/ferry/internal/forward/decode"
	"github.com/ferry-forward/ferry/internal/forward/jq"
	"github.com/ferry-forward/ferry/internal/forward/send"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

// Tally is what came of a file of test cases.
type Tally struct {
	Cases    int
	Checks   int
	Failures []Failure
}

// Failure is one thing that is not as a case wants it.
type Failure struct {
	File         string
	Line, Column int // of what is wanted
	Case         string
	Field        string // such as request.body.enter_state
	Wanted, Got  string
}

// String is one line for a person.
func (f Failure) String() string {
	return fmt.Sprintf("%s:%d:%d: %s: %s: wanted %s, got %s", f.File, f.Line, f.Column, f.Case, f.Field, f.Wanted, f.Got)
}

// String is a line that sums up.
func (t *Tally) String() string {
	s := counted(t.Cases, "case") + ", " + counted(t.Checks, "check")
	if len(t.Failures) == 0 {
		return s + ", all good"
	}
	failed := map[string]bool{}
	for _, f := range t.Failures {
		failed[f.File+"\x00"+f.Case] = true
	}
	return s + ", " + counted(len(t.Failures), "difference") + " in " + counted(len(failed), "case")
}

// Add adds what came of another file.
func (t *Tally) Add(more *Tally) {
	t.Cases, t.Checks, t.Failures = t.Cases+more.Cases, t.Checks+more.Checks, append(t.Failures, more.Failures...)
}

// Run runs the cases on a route file that has all their routes. Nothing is sent.
func Run(ctx context.Context, file *route.File, cases *route.Cases, version string) *Tally {
	t := &Tally{}
	trials := map[string]*Trial{}
	for i := range cases.Cases {
		one := &cases.Cases[i]
		trial := trials[one.Route]
		if trial == nil {
			trial = New(file, file.Route(one.Route), version)
			defer trial.Close()
			trials[one.Route] = trial
		}
		c := &checker{tally: t, redact: file.Redact, file: cases.Path, name: one.Name}
		t.Cases++
		c.run(ctx, trial, one)
	}
	return t
}

// checker compares what came of one case.
type checker struct {
	tally  *Tally
	redact func(string) string
	file   string
	name   string
}

// place is where something wanted is written.
type place struct{ line, column int }

func (c *checker) fail(at place, field, wanted, got string) {
	c.tally.Failures = append(c.tally.Failures, Failure{c.file, at.line, at.column, c.name, field, c.redact(wanted), c.redact(got)})
}

func (c *checker) equal(at place, field, wanted, got string) {
	c.tally.Checks++
	if wanted != got {
		wanted, got = abridged(wanted, got)
		c.fail(at, field, wanted, got)
	}
}

const (
	longest = 300 // of a text on a line, in characters
	shared  = 20  // of what two long texts have in common before they differ
)

// quote writes a text so that its ends, and what can't be seen, can be seen.
func quote(s string) string {
	runes, more := []rune(s), ""
	if len(runes) > longest {
		runes, more = runes[:longest], "…"
	}
	s = string(runes)
	if strings.Contains(s, `"`) && !strings.ContainsAny(s, "'") && strconv.CanBackquote(strings.ReplaceAll(s, "`", "")) {
		return "'" + s + "'" + more
	}
	return strconv.Quote(s) + more
}

// abridged leaves out what two long texts begin with alike.
func abridged(wanted, got string) (string, string) {
	w, g := []rune(wanted), []rune(got)
	same := 0
	for same < len(w) && same < len(g) && w[same] == g[same] {
		same++
	}
	if cut := same - shared; cut > shared && max(len(w), len(g)) > longest/3 {
		return "…" + quote(string(w[cut:])), "…" + quote(string(g[cut:]))
	}
	return quote(wanted), quote(got)
}

func (c *checker) run(ctx context.Context, t *Trial, one *route.Case) {
	m := &Mapped{Attempt: 1, Message: &message.Message{Route: t.route.Name}}
	if one.Input != nil {
		m = t.Record(ctx, recordFor(t.route, one.Input))
		c.record(one, m)
	}
	for i := range one.Replies {
		r := &one.Replies[i]
		c.reply(t, "responses["+strconv.Itoa(i)+"]", r, t.Judge(ctx, m, t.Response(&r.Answer)))
	}
}

// recordFor makes the record of a case.
func recordFor(rt *route.Route, in *route.Input) *message.Record {
	r := &message.Record{Value: in.Value, Timestamp: in.Timestamp}
	r.Topic, r.Partition, r.Offset = in.Topic, int32(in.Partition), int64(in.Offset)
	if r.Topic == "" && len(rt.Topics) > 0 {
		r.Topic = rt.Topics[0]
	}
	if in.Key != nil {
		r.Key = []byte(*in.Key)
	}
	for _, h := range in.Headers {
		header := message.Header{Name: h.Name}
		if h.Value != nil {
			header.Value = []byte(*h.Value)
		}
		r.Headers = append(r.Headers, header)
	}
	return r
}

// record compares what the route makes of the record.
func (c *checker) record(one *route.Case, m *Mapped) {
	e := &one.Expect
	if !e.Any() {
		return
	}
	at := place{one.Line, one.Column}
	wanted := !e.Filter.Set || e.Filter.Value
	if e.Filter.Set {
		at = place{e.Filter.Line, e.Filter.Column}
	}
	c.tally.Checks++
	if m.Taken() != wanted {
		got := strconv.FormatBool(m.Taken())
		switch {
		case m.Intake.FilterErr != nil:
			got += ", since the filter fails: " + m.Intake.FilterErr.Error()
		case m.Intake.Result == message.IngestTombstone:
			got += ", a tombstone that the route skips"
		}
		c.fail(at, "filter", strconv.FormatBool(wanted), got)
		return
	}
	if e.MessageKey.Set {
		c.tally.Checks++
		if got := m.Message.Key; got != e.MessageKey.Value {
			why := quote(got)
			if m.Intake.KeyErr != nil {
				why += ", the position, since " + m.Intake.KeyErr.Error()
			}
			c.fail(place{e.MessageKey.Line, e.MessageKey.Column}, "message_key", quote(e.MessageKey.Value), why)
		}
	}
	if e.Error.Set {
		c.failing(e, m)
	} else if e.Request() {
		c.request(one, m)
	}
}

// failing compares why no request can be made.
func (c *checker) failing(e *route.Expect, m *Mapped) {
	c.tally.Checks++
	at := place{e.Error.Line, e.Error.Column}
	switch {
	case m.Problem == nil:
		c.fail(at, "error", e.Error.Value.String(), "a request to "+m.Request.URL.String())
	case m.Problem.Reason != e.Error.Value:
		c.fail(at, "error", e.Error.Value.String(), m.Problem.Error())
	}
}

func (c *checker) request(one *route.Case, m *Mapped) {
	e := &one.Expect
	if m.Problem != nil {
		c.tally.Checks++
		c.fail(place{one.Line, one.Column}, "request", "one", "none: "+m.Problem.Error())
		return
	}
	req := m.Request
	if e.Method.Set {
		c.equal(place{e.Method.Line, e.Method.Column}, "request.method", e.Method.Value, req.Method)
	}
	if e.URL.Set {
		c.equal(place{e.URL.Line, e.URL.Column}, "request.url", e.URL.Value, req.URL.String())
	}
	c.headers(e, req)
	if e.BodyText.Set {
		c.equal(place{e.BodyText.Line, e.BodyText.Column}, "request.body_text", e.BodyText.Value, string(req.Body))
	}
	if e.Body.Set {
		c.body(e, req)
	}
}

// headers compares, name by name, all values that are wanted with all that there are.
func (c *checker) headers(e *route.Expect, req *send.Request) {
	var names []string
	wanted := map[string][]string{}
	at := map[string]place{}
	for _, h := range e.Headers {
		name := http.CanonicalHeaderKey(h.Name)
		if !slices.Contains(names, name) {
			names = append(names, name)
			at[name] = place{h.Line, h.Column}
		}
		if h.Value != nil {
			wanted[name] = append(wanted[name], *h.Value)
		}
	}
	for _, name := range names {
		c.tally.Checks++
		if got := req.Header[name]; !slices.Equal(got, wanted[name]) {
			c.fail(at[name], "request.headers."+name, values(wanted[name]), values(got))
		}
	}
}

func values(all []string) string {
	if len(all) == 0 {
		return "none"
	}
	quoted := make([]string, len(all))
	for i, v := range all {
		quoted[i] = quote(v)
	}
	return strings.Join(quoted, " and ")
}

// mostDifferences is how many differences of one body are told.
const mostDifferences = 20

func (c *checker) body(e *route.Expect, req *send.Request) {
	c.tally.Checks++
	at := place{e.Body.Line, e.Body.Column}
	got, err := decode.Format{Type: decode.JSON}.Value(req.Body)
	if err != nil {
		c.fail(at, "request.body", jsonText(e.Body.Value), quote(string(req.Body))+", which is no JSON: "+err.Error())
		return
	}
	all := differences("request.body", e.Body.Value, got)
	for i, d := range all {
		if i == mostDifferences {
			c.fail(at, "request.body", "the same", fmt.Sprintf("%d more differences", len(all)-i))
			break
		}
		c.fail(at, d.field, d.wanted, d.got)
	}
}

func (c *checker) reply(t *Trial, field string, r *route.Reply, j *Judged) {
	if r.Verdict.Set {
		c.tally.Checks++
		if at := (place{r.Verdict.Line, r.Verdict.Column}); j.Verdict != r.Verdict.Value {
			c.fail(at, field+".verdict", r.Verdict.Value.String(), j.Verdict.String()+", by "+t.verdictOf(j).decider())
		}
	}
	if r.Reason.Set {
		c.equal(place{r.Reason.Line, r.Reason.Column}, field+".reason", r.Reason.Value, j.Detail)
	}
	if r.ErrorCode.Set {
		at := place{r.ErrorCode.Line, r.ErrorCode.Column}
		if j.CodeProblem != "" && r.ErrorCode.Value != "" {
			c.tally.Checks++
			c.fail(at, field+".error_code", quote(r.ErrorCode.Value), "none: "+j.CodeProblem)
			return
		}
		c.equal(at, field+".error_code", r.ErrorCode.Value, j.ErrorCode)
	}
}

// jsonText is a value as one short line.
func jsonText(v any) string {
	b, err := jq.Marshal(v)
	if err != nil {
		return err.Error()
	}
	if utf8.RuneCount(b) > longest {
		return string([]rune(string(b))[:longest]) + "…"
	}
	return string(b)
}
