package trial

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ferry-forward/ferry/internal/forward/verdict"
	"github.com/ferry-forward/ferry/internal/message"
)

// String shows the report to a person.
func (r *Report) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s  "+format+"\n", append([]any{name}, args...)...)
	}
	line("route", "%s", r.Route)
	if r.Message != nil {
		line("message", "id:%d, %s, %s so far", r.Message.ID, r.Message.Status, counted(r.Message.Attempts, "attempt"))
	}
	line("record", "%s", r.Record)
	line("message key", "%s", r.keyText())
	line("filter", "%s", r.filterText())
	r.value(&b)
	if r.Request != nil {
		r.request(&b)
	}
	if r.Response != nil {
		r.answer(&b)
	}
	if r.Verdict != nil {
		r.verdict(&b)
	}
	return b.String()
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// String is topic/partition@offset and what else there is.
func (r Record) String() string {
	s := fmt.Sprintf("%s/%d@%d, %s", r.Topic, r.Partition, r.Offset, counted(r.Bytes, "byte"))
	if r.Key != nil {
		s += fmt.Sprintf(", key %q", *r.Key)
	}
	if r.Timestamp != nil {
		s += ", " + r.Timestamp.Format(time.RFC3339Nano)
	}
	return s
}

func (r *Report) keyText() string {
	switch {
	case r.MessageKeyError != nil:
		return r.MessageKey + " (the position: " + *r.MessageKeyError + ")"
	case r.MessageKeyFrom == "expression":
		return r.MessageKey
	case r.MessageKeyFrom == "stored":
		return r.MessageKey + " (as stored)"
	case !r.Filter.Taken:
		return "none, nothing is stored"
	}
	return r.MessageKey + " (the position: the route has no message_key)"
}

func (r *Report) filterText() string {
	switch {
	case r.Filter.Error != nil:
		return "fails, so the record is taken: " + *r.Filter.Error
	case r.Filter.Taken:
		return "taken"
	}
	what := "filtered out"
	if r.Filter.Result == message.IngestTombstone.String() {
		what = "a tombstone, which the route skips"
	}
	if r.MessageKeyFrom == "stored" {
		return what + " if it were read now; it is stored, and sent"
	}
	return what + ": counted, not stored, not sent"
}

func (r *Report) value(b *strings.Builder) {
	if r.ValueError != nil {
		fmt.Fprintf(b, "%-12s  can't be decoded: %s\n", "value", *r.ValueError)
		return
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, r.Value, "", "  ") != nil {
		pretty.Write(r.Value)
	}
	section(b, "value, as jq sees it", pretty.String())
}

func (r *Report) request(b *strings.Builder) {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s\n", r.Request.Method, r.Request.URL)
	for _, h := range r.Request.Headers {
		fmt.Fprintf(&text, "%s: %s\n", h.Name, h.Value)
	}
	kind := ""
	switch {
	case r.Request.Base64 != nil:
		kind = ", shown in base64"
		text.WriteString("\n" + *r.Request.Base64 + "\n")
	case *r.Request.Body != "":
		text.WriteString("\n" + *r.Request.Body + "\n")
	}
	section(b, "request, with a body of "+counted(r.Request.Bytes, "byte")+kind, text.String())
	section(b, "the same by curl", *r.Curl)
}

func (r *Report) answer(b *strings.Builder) {
	head := "answer, as given"
	if r.Sent {
		head = fmt.Sprintf("answer, after %d ms", r.Response.DurationMS)
	}
	var text strings.Builder
	if r.Response.Status != nil {
		fmt.Fprintf(&text, "%s\n", strings.TrimSpace(fmt.Sprint(*r.Response.Status, " ", http.StatusText(*r.Response.Status))))
	}
	for _, h := range r.Response.Headers {
		fmt.Fprintf(&text, "%s: %s\n", h.Name, h.Value)
	}
	if r.Response.Error != nil {
		text.WriteString("(" + *r.Response.Error + ")\n")
	}
	if r.Response.Body != "" {
		text.WriteString("\n" + strings.TrimRight(r.Response.Body, "\r\n") + "\n")
	}
	section(b, head, text.String())
	b.WriteByte('\n')
}

func (r *Report) verdict(b *strings.Builder) {
	line := func(name, value string) { fmt.Fprintf(b, "%-12s  %s\n", name, value) }
	line("verdict", r.Verdict.Verdict.String()+", which "+meaning(r.Verdict.Verdict))
	line("decided by", r.Verdict.decider())
	if r.Verdict.Reason != nil {
		line("reason", *r.Verdict.Reason)
	}
	if r.Verdict.ErrorCode != nil {
		line("error code", *r.Verdict.ErrorCode)
	}
	if r.Verdict.CodeError != nil {
		line("error code", "none: "+*r.Verdict.CodeError)
	}
	if r.Verdict.RetryAfterMS != nil {
		line("asks to wait", (time.Duration(*r.Verdict.RetryAfterMS) * time.Millisecond).String())
	}
}

func meaning(v message.Verdict) string {
	switch v {
	case message.Delivered:
		return "settles the message"
	case message.Retry:
		return "sends it again later and counts as an attempt, while the destination is healthy"
	case message.Hold:
		return "sends it again later and counts as no attempt"
	case message.Reject:
		return "fails the message for good"
	}
	return ""
}

func (v *Verdict) decider() string {
	switch v.By {
	case verdict.ByRule:
		return fmt.Sprintf("response.rules[%d] (%s): %s", v.Rule.Index, v.Rule.place(), v.Rule.When)
	case verdict.ByFault:
		return fmt.Sprintf("response.rules[%d], which could not be evaluated: %s", v.Rule.Index, *v.Rule.Error)
	case verdict.ByOtherwise:
		return "response.otherwise, no rule matches"
	case verdict.ByAuto:
	}
	s := "auto: the status, or that there is none"
	if v.Rule != nil {
		s += fmt.Sprintf("; response.rules[%d] could not be evaluated: %s", v.Rule.Index, *v.Rule.Error)
	}
	return s
}

// section writes text under a heading, as it is: blanks before its lines would not be part of it.
func section(b *strings.Builder, heading, text string) {
	fmt.Fprintf(b, "\n--- %s\n\n%s\n", heading, strings.TrimSuffix(text, "\n"))
}
