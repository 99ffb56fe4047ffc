package jq

import (
	"errors"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/ferry-forward/ferry/internal/message"
)

type variable int

// The variables, the same set in every program.
const (
	varKey variable = iota
	varHeaders
	varHeadersAll
	varTopic
	varPartition
	varOffset
	varTimestamp
	varMessageKey
	varRoute
	varAttempt
	varVars
	variableCount
)

// String returns the variable's name without the dollar sign.
func (v variable) String() string {
	return [...]string{
		"key", "headers", "headers_all", "topic", "partition", "offset", "timestamp", "message_key", "route", "attempt", "vars",
	}[v]
}

// Variables returns the names of all variables, without their dollar signs.
func Variables() []string {
	names := make([]string, 0, variableCount)
	for v := range variableCount {
		names = append(names, v.String())
	}
	return names
}

func variableNames() string { return "$" + strings.Join(Variables(), " $") }

// EnvOptions is what the variables of a program show beside the record.
type EnvOptions struct {
	Route      string
	MessageKey string         // "": $message_key is null, as it is before the key is known
	Attempt    int            // the attempt to be made, from 1; 0: $attempt is null
	Vars       map[string]any // nil: $vars is {}
}

// Env is the variables of programs that run for one record. Values are built when a program first uses them. It is not
// for use by several goroutines at once.
//
//	$key          the record's key as text; null when it is null or not valid UTF-8
//	$headers      an object from header names to text, of equal names the last; null values, and values that are not
//	              valid UTF-8, are null
//	$headers_all  a list of {name, value}
//	$topic $partition $offset
//	$timestamp    RFC 3339 in UTC with milliseconds; null when the record has none
//	$message_key $route $attempt $vars
//
// Bytes that are not UTF-8 become null and are not patched up with U+FFFD, because two keys that differ must never look
// the same.
type Env struct {
	record  *message.Record
	options EnvOptions
	built   [variableCount]bool
	value   [variableCount]any
}

// NewEnv returns the variables for a record.
func NewEnv(r *message.Record, o EnvOptions) *Env { return &Env{record: r, options: o} }

// values returns the values of the variables; without an Env they are all null.
func (e *Env) values(vars []variable) []any {
	if len(vars) == 0 {
		return nil
	}
	values := make([]any, len(vars))
	if e == nil {
		return values
	}
	for i, v := range vars {
		if !e.built[v] {
			e.value[v], e.built[v] = e.build(v), true
		}
		values[i] = e.value[v]
	}
	return values
}

func (e *Env) build(v variable) any {
	switch v {
	case varMessageKey:
		return notEmpty(e.options.MessageKey)
	case varRoute:
		return e.options.Route
	case varAttempt:
		if e.options.Attempt == 0 {
			return nil
		}
		return e.options.Attempt
	case varVars:
		if e.options.Vars == nil {
			return map[string]any{}
		}
		return e.options.Vars
	case varKey, varHeaders, varHeadersAll, varTopic, varPartition, varOffset, varTimestamp, variableCount:
	}
	if e.record == nil {
		return nil
	}
	return ofRecord(v, e.record)
}

func ofRecord(v variable, r *message.Record) any {
	switch v {
	case varKey:
		return text(r.Key)
	case varHeaders:
		headers := make(map[string]any, len(r.Headers))
		for _, h := range r.Headers {
			headers[strings.ToValidUTF8(h.Name, "\uFFFD")] = text(h.Value)
		}
		return headers
	case varHeadersAll:
		headers := make([]any, 0, len(r.Headers))
		for _, h := range r.Headers {
			headers = append(headers, map[string]any{"name": strings.ToValidUTF8(h.Name, "\uFFFD"), "value": text(h.Value)})
		}
		return headers
	case varTopic:
		return r.Topic
	case varPartition:
		return int(r.Partition)
	case varOffset:
		return int(r.Offset)
	case varTimestamp:
		if r.Timestamp.IsZero() {
			return nil
		}
		return r.Timestamp.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	case varMessageKey, varRoute, varAttempt, varVars, variableCount:
	}
	return nil
}

func text(b []byte) any {
	if b == nil || !utf8.Valid(b) {
		return nil
	}
	return string(b)
}

func notEmpty(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// quoted is a string in the words of an interpreter error; a preview of a long value has no closing quote.
var quoted = regexp.MustCompile(`"(\\.|[^"\\])*("|$)`)

// mask takes from the error of a program that sees $vars, which hold secrets, whatever could show one.
func (e *Env) mask(p *Program, err error) error {
	if e == nil || len(e.options.Vars) == 0 || !p.Uses(varVars.String()) || isOurs(err) {
		return err
	}
	s := err.Error()
	var hide func(v any)
	hide = func(v any) {
		switch v := v.(type) {
		case string:
			if len(v) >= 4 {
				s = strings.ReplaceAll(s, v, "***")
			}
		case []any:
			for _, e := range v {
				hide(e)
			}
		case map[string]any:
			for _, e := range v {
				hide(e)
			}
		}
	}
	hide(e.options.Vars)
	return &maskedError{quoted.ReplaceAllString(s, `"***"`)}
}

// maskedError does not wrap the error it stands for, which would show the value.
type maskedError struct{ text string }

func (e *maskedError) Error() string { return e.text }

func isOurs(err error) bool {
	return errors.Is(err, ErrTimeLimit) || errors.Is(err, errHalt)
}
