package trial

import (
	"context"
	"errors"

	"github.com/ferry-forward/ferry/internal/forward"
	"github.com/ferry-forward/ferry/internal/forward/send"
	"github.com/ferry-forward/ferry/internal/forward/verdict"
	"github.com/ferry-forward/ferry/internal/intake"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

// Trial tries one route of a file.
type Trial struct {
	file    *route.File
	route   *route.Route
	version string
	forward *forward.Deliverer
}

// New returns the trial of a route of the file; version is Ferry's, for the User-Agent. Close it.
func New(file *route.File, rt *route.Route, version string) *Trial {
	return &Trial{file: file, route: rt, version: version, forward: forward.New(rt, forward.Options{Version: version})}
}

// Close closes the connections.
func (t *Trial) Close() { t.forward.Close() }

// Mapped is what a route makes of a record.
type Mapped struct {
	Message *message.Message
	Stored  bool // it is a message of the database: its key stands, and it was taken
	Attempt int  // that is tried, from 1
	Intake  intake.Outcome
	// Value is what jq programs see, unless ValueErr says why there is nothing; nil for a tombstone.
	Value    any
	ValueErr error
	// Request is what is sent; it holds secrets. It is nil when the record is not taken, and when Problem says why there
	// can be none.
	Request *send.Request
	Problem *Problem
}

// Taken says whether there is a message to be sent.
func (m *Mapped) Taken() bool { return m.Stored || m.Intake.Result == message.IngestStored }

// Problem is why a record can't be sent.
type Problem struct {
	route.Fault
	Reason message.Reason
}

// Error says where and why.
func (p *Problem) Error() string { return p.Fault.Error() + " (" + p.Reason.String() + ")" }

// Record returns what the route makes of a record, as the ingester would store it and the forwarder send it first.
func (t *Trial) Record(ctx context.Context, r *message.Record) *Mapped {
	m := &Mapped{Attempt: 1, Message: &message.Message{Route: t.route.Name, Record: *r}}
	m.Intake = intake.New(r).For(ctx, t.route)
	m.Message.Key = m.Intake.Key
	t.fill(ctx, m)
	return m
}

// Message returns what the route makes of a stored message in one of its attempts (from 1).
func (t *Trial) Message(ctx context.Context, stored *message.Message, attempt int) *Mapped {
	m := &Mapped{Attempt: attempt, Message: stored, Stored: true, Intake: intake.New(&stored.Record).For(ctx, t.route)}
	t.fill(ctx, m)
	return m
}

func (t *Trial) fill(ctx context.Context, m *Mapped) {
	if !m.Message.Tombstone() {
		m.Value, m.ValueErr = t.route.Decode.Value(m.Message.Value)
	}
	if !m.Taken() {
		return
	}
	req, failure := t.forward.Map(ctx, m.Message, m.Attempt)
	if failure == nil {
		m.Request = req
		return
	}
	m.Problem = &Problem{Reason: failure.Reason}
	if failure.Field == "" {
		m.Problem.Fault = route.Fault{File: t.file.Path, Field: "routes[" + t.route.Name + "]", Message: "the value can't be decoded: " + failure.Err.Error()}
		return
	}
	t.forward.Blame(ctx, m.Message, m.Attempt, failure)
	m.Problem.Fault = t.file.FaultAt(t.route, failure.Field, failure.Offset, failure.Err.Error())
}

// Judged is an answer and what it comes to.
type Judged struct {
	Response *send.Response
	verdict.Judgement
	// Rule is the rule that decided, as it stands in the file, and where; empty when none did.
	When        string
	RuleAt      route.Fault
	RuleProblem string // why that rule could not be evaluated
	CodeProblem string // why error_code could not
}

// Send sends the request of m, once, as the worker would, and judges the answer. No state of m changes.
func (t *Trial) Send(ctx context.Context, m *Mapped) *Judged {
	return t.Judge(ctx, m, t.forward.Send(ctx, m.Request))
}

// Judge judges an answer.
func (t *Trial) Judge(ctx context.Context, m *Mapped, resp *send.Response) *Judged {
	j := &Judged{Response: resp, Judgement: t.forward.Judge(ctx, m.Message, m.Attempt, resp)}
	if j.Rule != verdict.NoRule {
		field := ruleField(j.Rule)
		j.When = t.route.TextOf(field)
		j.RuleAt = t.file.FaultAt(t.route, field, 0, "")
	}
	if j.RuleErr != nil {
		j.RuleProblem = t.file.FaultAt(t.route, ruleField(j.Rule), 0, j.RuleErr.Error()).Error()
	}
	if j.CodeErr != nil {
		j.CodeProblem = t.file.FaultAt(t.route, "response.error_code", 0, j.CodeErr.Error()).Error()
	}
	return j
}

// ErrEnded says that the trial was ended before there was an answer.
var ErrEnded = errors.New("ended before there was an answer")
