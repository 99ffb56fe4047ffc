package forwarder

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/message"
)

const (
	// shownBytes is how much is shown of a payload and of a body.
	shownBytes = 64 << 10
	// dumpedBytes is the same of one that is no text: each line of a dump has 16 bytes and takes 79.
	dumpedBytes = shownBytes / 79 * 16
	// shownAttempts is how many attempts are shown: the last ones.
	shownAttempts = 50
)

// text shows the message to a person.
func (s *showing) text() string {
	p := &page{}
	s.head(p)
	s.state(p)
	if headers := s.headers(); len(headers) > 0 {
		p.section("headers of the record")
		for _, h := range headers {
			value := "null"
			if h.Value != nil {
				value = printable(string(h.Value))
			}
			p.printf("%s: %s\n", printable(h.Name), value)
		}
	}
	s.payload(p)
	s.requestNow(p)
	s.attempts(p)
	p.section("what helps now")
	for _, line := range s.help() {
		p.printf("- %s\n", line)
	}
	return p.String()
}

// page is what is printed.
type page struct{ strings.Builder }

func (p *page) printf(format string, args ...any) { _, _ = fmt.Fprintf(p, format, args...) }

func (p *page) line(name, format string, args ...any) {
	p.printf("%-12s  %s\n", name, fmt.Sprintf(format, args...))
}

// section writes a heading; what comes under it is as it is: blanks before its lines would not be part of it.
func (p *page) section(format string, args ...any) { p.nothing(format+"\n", args...) }

// nothing writes a heading with nothing under it.
func (p *page) nothing(format string, args ...any) { p.printf("\n--- "+format+"\n", args...) }

// head says which record it is.
func (s *showing) head(p *page) {
	m := &s.Message
	p.line("message", "id:%d", s.ID)
	p.line("route", "%s", s.Route)
	p.line("key", "%s", printable(s.Key))
	p.line("record", "%s, topic id %s", m.Position, m.TopicID)
	if s.ProducedAt != nil {
		p.line("produced", "%s", moment(*s.ProducedAt))
	} else {
		p.line("produced", "the record has no time")
	}
	p.line("received", "%s, %s ago", moment(s.ReceivedAt), short(s.Now.Sub(s.ReceivedAt)))
	if m.Record.Key == nil {
		p.line("kafka key", "none")
	} else {
		p.line("kafka key", "%s", printable(string(m.Record.Key)))
	}
	if s.Lane != nil {
		p.line("lane", "%s", printable(*s.Lane))
	}
}

// state says what became of it.
func (s *showing) state(p *page) {
	status := s.Status.String()
	switch {
	case s.Status == "":
		status = "unknown: its row in ferry.deliveries is gone"
	case s.Reason != nil:
		status += ", " + *s.Reason
	}
	if s.Detail != nil {
		status += ": " + visible(*s.Detail)
	}
	p.line("status", "%s", status)
	rt := s.asking.file.Route(s.Route)
	attempts := fmt.Sprint(s.MessageStatus.Attempts)
	if rt != nil {
		attempts += fmt.Sprintf(" of %d", rt.Retry.MaxAttempts)
	}
	p.line("attempts", "%s, in %s", attempts, counted(s.Requests, "request"))
	if s.HTTPStatus != nil || s.ErrorCode != nil || s.Error != nil {
		p.line("last answer", "%s", answer(s.HTTPStatus, s.ErrorCode, s.Error))
	}
	if s.Status == message.StatusPending {
		p.line("due from", "%s", moment(s.DueFrom))
		if s.NextAttemptAt != nil {
			p.line("next try", "%s", moment(*s.NextAttemptAt))
		}
	}
	if s.SettledAt != nil {
		p.line("settled", "%s", moment(*s.SettledAt))
	}
	if s.Status == message.StatusFailed && (!s.DeadLetteredAt.IsZero() || rt != nil && rt.DeadLetter.Topic != "") {
		if s.DeadLetteredAt.IsZero() {
			p.line("dead letter", "none in Kafka yet")
		} else {
			p.line("dead letter", "in Kafka since %s", moment(s.DeadLetteredAt))
		}
	}
	if rt != nil && s.SettledAt != nil {
		keep := rt.Retention.Delivered
		if s.Status == message.StatusFailed {
			keep = rt.Retention.Failed
		}
		p.line("kept until", "%s", clock(s.SettledAt.Add(keep)))
	}
	if j := s.job(); j != nil {
		p.line("job", "%s", jobText(j.ID, j.Kind, j.State, j.Queue, j.Attempt, j.Messages, j.ScheduledAt))
		if j.LastError != nil {
			p.line("job error", "%s", shorten(visible(*j.LastError), 300))
		}
	}
}

func jobText(id int64, kind, state, queue string, run, n int, at *time.Time) string {
	text := fmt.Sprintf("%d, %s, %s", id, kind, state)
	if state == missing {
		return text
	}
	text += fmt.Sprintf(", queue %s, run %d, of %s", queue, run, counted(n, "message"))
	if at != nil {
		text += ", scheduled at " + moment(*at)
	}
	return text
}

// payload shows the record's value: JSON indented, text as it is, else as bytes.
func (s *showing) payload(p *page) {
	v := s.Message.Value
	switch {
	case s.refused():
		p.nothing("payload: not stored, the database refused it")
		return
	case v == nil:
		p.nothing("payload: null, the record is a tombstone")
		return
	}
	kind, text := shownText(v)
	if kind == inBytes && len(v) >= 5 && v[0] == 0 {
		kind += fmt.Sprintf(", with the Confluent wire header of schema %d, if it is one", binary.BigEndian.Uint32(v[1:5]))
	}
	if text == "" {
		p.nothing("payload, empty")
		return
	}
	p.section("payload, %s, %s", counted(len(v), "byte"), kind)
	p.WriteString(text)
}

const inBytes = "no text"

// shownText is a payload or body for people, and what it is. It ends in a newline, and is cut where it is long.
func shownText(b []byte) (kind, text string) {
	if !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
		text = hex.Dump(b[:min(len(b), dumpedBytes)])
		if len(b) > dumpedBytes {
			text += cutNote(dumpedBytes, len(b))
		}
		return inBytes, text
	}
	kind = "text"
	var pretty bytes.Buffer
	if json.Indent(&pretty, bytes.TrimPrefix(b, []byte("\uFEFF")), "", "  ") == nil { // numbers stay as they are written
		kind, b = "JSON", pretty.Bytes()
	}
	if len(b) == 0 {
		return "empty", ""
	}
	end := min(len(b), shownBytes)
	for end < len(b) && !utf8.RuneStart(b[end]) {
		end--
	}
	text = strings.TrimSuffix(visibleLines(string(b[:end])), "\n") + "\n"
	if end < len(b) {
		text += cutNote(end, len(b))
	}
	return kind, text
}

func cutNote(shown, of int) string {
	return fmt.Sprintf("… cut: %s of %s bytes are shown; --raw writes the payload whole, --json all\n", app.Thousands(int64(shown)), app.Thousands(int64(of)))
}

// requestNow shows the request that would be sent now.
func (s *showing) requestNow(p *page) {
	if s.request == nil {
		p.section("request, by the route file as it is now: none")
		p.printf("%s\n", visible(s.problem))
		return
	}
	p.section("request, by the route file as it is now")
	p.printf("%s %s\n", s.request.Method, visible(s.request.URL))
	for _, h := range s.request.Headers {
		p.printf("%s: %s\n", h.Name, visible(h.Value))
	}
	switch {
	case s.request.Body != nil && *s.request.Body != "":
		_, text := shownText([]byte(*s.request.Body))
		p.printf("\n%s", text)
	case s.request.Base64 != nil:
		p.printf("\n(a body of %s that is no text)\n", counted(s.request.Bytes, "byte"))
	}
}

// attempts shows the requests that were sent, the last ones if there are many.
func (s *showing) attempts(p *page) {
	all := s.Story.Attempts
	switch {
	case len(all) == 0 && s.Requests == 0:
		p.nothing("attempts: none")
		return
	case len(all) == 0:
		p.nothing("attempts: %s, which are not kept any more", counted(s.Requests, "request"))
		return
	}
	p.section("attempts")
	if left := len(all) - shownAttempts; left > 0 {
		p.printf("(%s before are left out; --json has them)\n", counted(left, "attempt"))
		all = all[left:]
	}
	for i := range all {
		at := &all[i]
		verdict := at.Verdict
		if !at.Counted {
			verdict += ", not counted"
		}
		p.printf("%d  %s  %d ms  %s  %s\n", at.Attempt, moment(at.StartedAt), at.DurationMS, verdict, answer(at.HTTPStatus, at.ErrorCode, at.Error))
		if at.Response != nil {
			for line := range strings.Lines(strings.TrimRight(*at.Response, "\r\n")) {
				p.printf("   | %s\n", visible(strings.TrimRight(line, "\r\n")))
			}
		}
		if at.NextAttemptAt != nil {
			p.printf("   next try %s\n", moment(*at.NextAttemptAt))
		}
	}
}

// answer says in a line what came back.
func answer(status *int32, code, err *string) string {
	var parts []string
	if status != nil {
		parts = append(parts, strings.TrimSpace(fmt.Sprint(*status, " ", http.StatusText(int(*status)))))
	} else {
		parts = append(parts, "no answer")
	}
	if code != nil {
		parts = append(parts, "code "+visible(*code))
	}
	if err != nil {
		parts = append(parts, visible(*err))
	}
	return strings.Join(parts, ", ")
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%s %ss", app.Thousands(int64(n)), what)
}

// moment is a time to the millisecond.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }
