package forwarder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/trial"
)

// showCommand shows one message, and what became of it.
func showCommand() *cobra.Command {
	var route string
	var asJSON, raw bool
	cmd := &cobra.Command{
		Use:   "show KEY|ID",
		Short: "Show a message: record, state, the request it maps to now, attempts, job, and what helps now",
		Long: "Show a message. key:K names it by its key, id:N by its id; a bare word means both.\n" +
			"What ${…} of the route file stands for is not shown.",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return app.Usage(errors.New("forwarder show takes one message: key:K, id:N, or a word that may be either"))
			case asJSON && raw:
				return app.Usage(errors.New("--raw writes the payload alone, --json all but as JSON; give one of them"))
			}
			return ask(cmd, func(ctx context.Context, a *asking) error {
				if route != "" {
					if err := a.knowsRoutes(ctx, []string{route}); err != nil {
						return err
					}
				}
				found, err := a.find(ctx, args[0], route, "forwarder show")
				if err != nil {
					return err
				}
				s, err := a.show(ctx, found.ID)
				if err != nil {
					return err
				}
				switch {
				case raw:
					return s.writeRaw(cmd.OutOrStdout(), cmd.ErrOrStderr())
				case asJSON:
					return s.writeJSON(cmd.OutOrStdout())
				}
				_, err = io.WriteString(cmd.OutOrStdout(), s.text())
				return printed(err)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&route, "route", "", "of this route, where several have the key")
	flags.BoolVar(&asJSON, "json", false, "print one object: {message, attempts, job}")
	flags.BoolVar(&raw, "raw", false, "write the payload alone, byte for byte")
	return cmd
}

// showing is a message as show shows it: without secrets.
type showing struct {
	*store.Story

	asking  *asking
	request *trial.Request
	problem string // why there is no request
}

// show gathers what there is to be shown.
func (a *asking) show(ctx context.Context, id int64) (*showing, error) {
	story, err := a.store.Story(ctx, id)
	if err != nil {
		return nil, unanswered(ctx, err)
	}
	if story == nil {
		return nil, app.Finding(fmt.Errorf("message %d was purged a moment ago", id))
	}
	s := &showing{Story: story, asking: a}
	s.mapNow(ctx)
	a.redact(&story.MessageStatus)
	for i := range story.Attempts {
		at := &story.Attempts[i]
		a.hide(&at.ErrorCode, &at.Error, &at.Response)
	}
	if story.Job != nil {
		a.hide(&story.Job.LastError)
	}
	return s, nil
}

// hide puts ${NAME} back where a text that came from elsewhere has its value.
func (a *asking) hide(texts ...**string) {
	for _, s := range texts {
		if *s != nil {
			shown := a.file.Redact(**s)
			*s = &shown
		}
	}
}

// mapNow makes the request that would be sent now.
func (s *showing) mapNow(ctx context.Context) {
	file := s.asking.file
	rt := file.Route(s.Route)
	switch {
	case rt == nil:
		s.problem = fmt.Sprintf("route %s is not in %s, which has %s", s.Route, file.Path, strings.Join(file.Names(), ", "))
		return
	case s.refused():
		s.problem = "the database refused the record's content, so that there is nothing to be sent"
		return
	}
	t := trial.New(file, rt, app.BuildVersion("forwarder").Version)
	defer t.Close()
	m := t.Message(ctx, &s.Message, int(s.MessageStatus.Attempts)+1)
	if m.Problem != nil {
		s.problem = file.Redact(m.Problem.Error())
		return
	}
	s.request = t.Report(ctx, m, nil, false).Request
	for i := range s.request.Headers {
		h := &s.request.Headers[i]
		if secretName.MatchString(h.Name) && !strings.Contains(h.Value, "${") {
			h.Value = masked
		}
	}
}

// refused says whether the database took the message, but not its payload.
func (s *showing) refused() bool { return s.Message.Value == nil && s.Sum != nil }

// masked stands for what is secret by where it stands.
const masked = "***"

// secretName matches names of headers that are secret whatever their values come from.
var secretName = regexp.MustCompile(`(?i)^(proxy-)?authorization$|cookie|token|secret|passw|api-?key|signature`)

// writeRaw writes the payload as it came.
func (s *showing) writeRaw(out, notes io.Writer) error {
	if s.refused() {
		return app.Finding(errors.New("the database refused this message's payload; " + s.rereads() + " reads it again"))
	}
	if s.Message.Value == nil {
		_, _ = fmt.Fprintln(notes, "the record is a tombstone: its value is null")
	}
	_, err := out.Write(s.Message.Value)
	return printed(err)
}

func (s *showing) rereads() string {
	return fmt.Sprintf("ingester reread --topic %s --partition %d --from %d --to %d --route %s", s.Topic, s.Partition, s.Offset, s.Offset+1, s.Route)
}

// shownMessage is the message in JSON: the columns of message_status, and more.
type shownMessage struct {
	*store.MessageStatus

	TopicID        string          `json:"topic_id"`
	Headers        []shownHeader   `json:"headers"`
	KafkaKey       json.RawMessage `json:"kafka_key,omitempty"`
	KafkaKeyBase64 []byte          `json:"kafka_key_base64,omitempty"`
	Payload        json.RawMessage `json:"payload,omitempty"`
	PayloadBase64  []byte          `json:"payload_base64,omitempty"`
	PayloadBytes   int             `json:"payload_bytes"`
	Requests       int             `json:"requests"`
	DueFrom        *time.Time      `json:"due_from"`
	DeadLetteredAt *time.Time      `json:"dead_lettered_at"`
	Request        *trial.Request  `json:"request"`
	RequestError   *string         `json:"request_error"`
	Conflicts      []store.Named   `json:"conflicts"`
	Help           []string        `json:"help"`
}

// shownHeader is a header of the record.
type shownHeader struct {
	Name        json.RawMessage `json:"name,omitempty"`
	NameBase64  []byte          `json:"name_base64,omitempty"`
	Value       json.RawMessage `json:"value,omitempty"`
	ValueBase64 []byte          `json:"value_base64,omitempty"`
}

func (s *showing) writeJSON(out io.Writer) error {
	m := shownMessage{
		MessageStatus: inUTC(&s.MessageStatus), TopicID: s.Message.TopicID.String(), Headers: []shownHeader{}, PayloadBytes: len(s.Message.Value),
		Requests: s.Requests, DueFrom: utc(s.DueFrom), DeadLetteredAt: utc(s.DeadLetteredAt), Request: s.request,
		Conflicts: s.Conflicts, Help: s.help(),
	}
	if s.problem != "" {
		m.RequestError = &s.problem
	}
	m.KafkaKey, m.KafkaKeyBase64 = textOrBytes(s.Message.Record.Key)
	m.Payload, m.PayloadBase64 = textOrBytes(s.Message.Value)
	for _, h := range s.headers() {
		var j shownHeader
		j.Name, j.NameBase64 = textOrBytes([]byte(h.Name))
		j.Value, j.ValueBase64 = textOrBytes(h.Value)
		m.Headers = append(m.Headers, j)
	}
	for i := range s.Attempts {
		at := &s.Attempts[i]
		at.StartedAt = at.StartedAt.UTC()
		at.NextAttemptAt = utcOf(at.NextAttemptAt)
	}
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return printed(e.Encode(struct {
		Message  shownMessage      `json:"message"`
		Attempts []store.Attempted `json:"attempts"`
		Job      *store.Job        `json:"job"`
	}{m, s.Attempts, s.job()}))
}

// headers are those of the record, without the values that are secret by their names.
func (s *showing) headers() []message.Header {
	shown := make([]message.Header, len(s.Message.Headers))
	for i, h := range s.Message.Headers {
		if shown[i] = h; h.Value != nil && secretName.MatchString(h.Name) {
			shown[i].Value = []byte(masked)
		}
	}
	return shown
}

const missing = "missing"

// job is the one that owns the message, also one that is gone; nil when none does.
func (s *showing) job() *store.Job {
	if s.Job == nil && s.JobID != 0 {
		return &store.Job{ID: s.JobID, Kind: "forward", Queue: s.Route, State: missing}
	}
	if s.Job != nil {
		s.Job.ScheduledAt = utcOf(s.Job.ScheduledAt)
	}
	return s.Job
}

// textOrBytes returns bytes as JSON text if they are text, null included, and else themselves.
func textOrBytes(b []byte) (text json.RawMessage, raw []byte) {
	if b == nil {
		return json.RawMessage("null"), nil
	}
	if !utf8.Valid(b) {
		return nil, b
	}
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(string(b)); err != nil { // a string can't fail
		return nil, b
	}
	return json.RawMessage(strings.TrimSpace(out.String())), nil
}

func utc(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func utcOf(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	return utc(*t)
}
