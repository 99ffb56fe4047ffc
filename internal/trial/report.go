package trial

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ferry-forward/ferry/internal/forward/decode"
	"github.com/ferry-forward/ferry/internal/forward/jq"
	"github.com/ferry-forward/ferry/internal/forward/verdict"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

// Report is what a trial found, as JSON shows it. It holds no secrets. Its form is docs/schemas/try.schema.json.
type Report struct {
	Route   string         `json:"route"`
	Message *StoredMessage `json:"message"` // nil: the record is not from the database
	Record  Record         `json:"record"`

	Value      json.RawMessage `json:"value"`       // as jq sees it
	ValueError *string         `json:"value_error"` // why there is none

	MessageKey      string  `json:"message_key"`
	MessageKeyFrom  string  `json:"message_key_from"` // expression, position or stored
	MessageKeyError *string `json:"message_key_error"`

	Filter Filter `json:"filter"`

	Request *Request `json:"request"` // nil: none is made
	Curl    *string  `json:"curl"`
	Error   *Fault   `json:"error"` // why none can be made

	Sent     bool      `json:"sent"`
	Response *Response `json:"response"`
	Verdict  *Verdict  `json:"verdict"`
}

// StoredMessage is the message of the database that was tried.
type StoredMessage struct {
	ID       int64          `json:"id"`
	Status   message.Status `json:"status"`
	Attempts int            `json:"attempts"`
}

// Record is where a record stands and what it holds beside its value.
type Record struct {
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	Offset    int64      `json:"offset"`
	Key       *string    `json:"key"` // null: none, or not UTF-8
	Timestamp *time.Time `json:"timestamp"`
	Bytes     int        `json:"bytes"` // of the value
}

// Filter says whether the route takes the record.
type Filter struct {
	Taken  bool    `json:"taken"`
	Result string  `json:"result"` // stored, filtered or tombstone, as ferry_ingest_records_total counts it
	Error  *string `json:"error"`  // why the filter could not be evaluated; the record is taken then
}

// Request is a request without its secrets.
type Request struct {
	Method  string       `json:"method"`
	URL     string       `json:"url"`
	Headers []HeaderLine `json:"headers"`
	Body    *string      `json:"body"`        // null: it is not UTF-8
	Base64  *string      `json:"body_base64"` // null: it is
	Bytes   int          `json:"bytes"`       // of the body, as it goes on the wire
}

// HeaderLine is one line of a header.
type HeaderLine struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Fault is why no request can be made. Line and column are 0 where it stands nowhere in the route file.
type Fault struct {
	Reason  message.Reason `json:"reason"`
	File    string         `json:"file"`
	Line    int            `json:"line"`
	Column  int            `json:"column"`
	Field   string         `json:"field"`
	Message string         `json:"message"`
}

// Response is an answer, or why there is none.
type Response struct {
	Status     *int         `json:"status"`
	Headers    []HeaderLine `json:"headers"`
	Body       string       `json:"body"` // the first 1 KiB
	Error      *string      `json:"error"`
	DurationMS int64        `json:"duration_ms"`
}

// Verdict is what an answer comes to.
type Verdict struct {
	Verdict      message.Verdict `json:"verdict"`
	By           verdict.By      `json:"by"`
	Rule         *Rule           `json:"rule"` // null: no rule decided
	Reason       *string         `json:"reason"`
	ErrorCode    *string         `json:"error_code"`
	CodeError    *string         `json:"error_code_error"`
	RetryAfterMS *int64          `json:"retry_after_ms"`
}

// Rule is the rule that decided, or that could not be evaluated.
type Rule struct {
	Index  int     `json:"index"` // from 0
	When   string  `json:"when"`
	File   string  `json:"file"`
	Line   int     `json:"line"`
	Column int     `json:"column"`
	Error  *string `json:"error"`
}

// Report puts together what was found. J is nil when no answer was judged; sent says that it came of a request.
func (t *Trial) Report(ctx context.Context, m *Mapped, j *Judged, sent bool) *Report {
	r := &Report{
		Route: t.route.Name, Record: recordOf(&m.Message.Record), MessageKey: m.Message.Key, Sent: sent,
		Filter: Filter{Taken: m.Intake.Result == message.IngestStored, Result: m.Intake.Result.String(), Error: t.problem("filter", m.Intake.FilterErr)},
	}
	switch {
	case m.Stored:
		r.MessageKeyFrom = "stored"
	case m.Intake.KeyErr != nil || t.route.MessageKey == nil || !m.Taken():
		r.MessageKeyFrom = "position"
		r.MessageKeyError = t.problem("message_key", m.Intake.KeyErr)
	default:
		r.MessageKeyFrom = "expression"
	}
	t.reportValue(r, m)
	if m.Request != nil {
		shown := t.Show(ctx, m)
		curl := shown.Curl()
		r.Request, r.Curl = requestOf(shown), &curl
	}
	if p := m.Problem; p != nil {
		r.Error = &Fault{p.Reason, p.File, p.Line, p.Column, p.Field, p.Message}
	}
	if j != nil {
		r.Response, r.Verdict = t.responseOf(j), t.verdictOf(j)
	}
	return r
}

func (t *Trial) reportValue(r *Report, m *Mapped) {
	err := m.ValueErr
	if err == nil {
		if r.Value, err = jq.Marshal(m.Value); err == nil {
			return
		}
	}
	r.Value = json.RawMessage("null")
	r.ValueError = some(err.Error())
}

// problem words the error of a field's program, with its place; nil: there is none.
func (t *Trial) problem(field string, err error) *string {
	var undecodable *decode.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &undecodable):
		return some("the value can't be decoded: " + err.Error())
	}
	return some(t.file.FaultAt(t.route, field, 0, err.Error()).Error())
}

func recordOf(r *message.Record) Record {
	out := Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Bytes: len(r.Value)}
	if r.Key != nil && utf8.Valid(r.Key) {
		out.Key = some(string(r.Key))
	}
	if !r.Timestamp.IsZero() {
		at := r.Timestamp.UTC()
		out.Timestamp = &at
	}
	return out
}

func requestOf(s *Shown) *Request {
	r := &Request{Method: s.Method, URL: s.URL.String(), Headers: []HeaderLine{}, Bytes: len(s.Raw)}
	for _, h := range s.Headers {
		r.Headers = append(r.Headers, HeaderLine{h.Name, strings.ToValidUTF8(h.Value.String(), "\uFFFD")})
	}
	if utf8.Valid(s.Raw) {
		r.Body = some(s.Body.String())
	} else {
		r.Base64 = some(base64.StdEncoding.EncodeToString(s.Raw))
	}
	return r
}

// responseOf shows an answer. Destinations echo what they get, so that secrets are taken out.
func (t *Trial) responseOf(j *Judged) *Response {
	r := &Response{Headers: []HeaderLine{}, Body: t.file.Redact(j.Judgement.Response), DurationMS: j.Response.Duration.Milliseconds()}
	if j.Response.Status != 0 {
		r.Status = &j.Response.Status
	}
	for _, name := range slices.Sorted(maps.Keys(j.Response.Header)) {
		for _, v := range j.Response.Header[name] {
			r.Headers = append(r.Headers, HeaderLine{name, t.file.Redact(message.Clean(v, verdict.MaxError))})
		}
	}
	if j.Error != "" {
		r.Error = some(t.file.Redact(j.Error))
	}
	return r
}

func (t *Trial) verdictOf(j *Judged) *Verdict {
	v := &Verdict{Verdict: j.Verdict, By: j.By}
	if j.Rule != verdict.NoRule {
		v.Rule = &Rule{Index: j.Rule, When: j.When, File: j.RuleAt.File, Line: j.RuleAt.Line, Column: j.RuleAt.Column}
		if j.RuleProblem != "" {
			v.Rule.Error = &j.RuleProblem
		}
	}
	if j.Detail != "" {
		v.Reason = some(t.file.Redact(j.Detail))
	}
	if j.ErrorCode != "" {
		v.ErrorCode = some(t.file.Redact(j.ErrorCode))
	}
	if j.CodeProblem != "" {
		v.CodeError = &j.CodeProblem
	}
	if j.RetryAfter > 0 {
		ms := j.RetryAfter.Milliseconds()
		v.RetryAfterMS = &ms
	}
	return v
}

func some(s string) *string { return &s }

// JSON returns the report, indented and ending in a newline.
func (r *Report) JSON() ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// place names a rule for people.
func (r *Rule) place() string {
	return route.Fault{File: r.File, Line: r.Line, Column: r.Column}.Place()
}
