package store

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

// Filter says which messages are meant: those that all of its fields fit. A field with the zero value fits all.
type Filter struct {
	Routes       []string
	Status       message.Status
	Reason       message.Reason // of failed messages
	Since, Until time.Time      // of received_at; Until is exclusive
	KeyPrefix    string
	HTTPStatus   int
	ErrorCode    string

	Topic      string
	Partition  *int32 // needs a topic
	FromOffset *int64 // needs a partition
	ToOffset   *int64 // exclusive; needs a partition
}

// FilterError says that no message can fit a filter, or that it has a value of a wrong form.
type FilterError struct {
	Field string // in the form of a column: key_prefix
	Why   string // and what to give
}

// Error names the field as a flag does.
func (e *FilterError) Error() string {
	return "--" + strings.ReplaceAll(e.Field, "_", "-") + ": " + e.Why
}

// Check returns a *FilterError for a filter that can't be meant.
func (f *Filter) Check() error {
	for _, text := range []struct{ field, value string }{
		{"route", strings.Join(f.Routes, "")}, {"key_prefix", f.KeyPrefix}, {"error_code", f.ErrorCode}, {"topic", f.Topic},
	} {
		if !isText(text.value) {
			return &FilterError{text.field, "the database holds no such text: it has a NUL or is not valid UTF-8"}
		}
	}
	switch {
	case f.Status != "" && !slices.Contains(message.Statuses(), f.Status):
		return &FilterError{"status", fmt.Sprintf("%q is no status; give %s", f.Status, oneOf(message.Statuses()))}
	case f.Reason != "" && !slices.Contains(message.Reasons(), f.Reason):
		return &FilterError{"reason", fmt.Sprintf("%q is no reason; give %s", f.Reason, oneOf(message.Reasons()))}
	case f.Reason != "" && f.Status != "" && f.Status != message.StatusFailed:
		return &FilterError{"reason", fmt.Sprintf("a message that is %s has none; leave out one of the two, or ask for failed", f.Status)}
	case !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until):
		return &FilterError{"until", fmt.Sprintf("%s is not after --since, %s; give a later time",
			f.Until.Format(time.RFC3339), f.Since.Format(time.RFC3339))}
	case f.HTTPStatus != 0 && (f.HTTPStatus < 100 || f.HTTPStatus > 599):
		return &FilterError{"http_status", fmt.Sprintf("%d is no HTTP status; give 100 to 599", f.HTTPStatus)}
	}
	return f.checkPosition()
}

func (f *Filter) checkPosition() error {
	switch {
	case f.Partition != nil && *f.Partition < 0:
		return &FilterError{"partition", fmt.Sprintf("%d is not the number of a partition; give a whole number from 0 on", *f.Partition)}
	case f.Partition != nil && f.Topic == "":
		return &FilterError{"partition", "says nothing without its topic; give --topic too"}
	case f.FromOffset != nil && f.Partition == nil:
		return &FilterError{"from_offset", "offsets are those of one partition; give --topic and --partition too"}
	case f.ToOffset != nil && f.Partition == nil:
		return &FilterError{"to_offset", "offsets are those of one partition; give --topic and --partition too"}
	case f.FromOffset != nil && f.ToOffset != nil && *f.FromOffset >= *f.ToOffset:
		return &FilterError{"to_offset", fmt.Sprintf("%d is not above --from-offset, %d, and is itself left out; give a higher one", *f.ToOffset, *f.FromOffset)}
	}
	return nil
}

// oneOf lists what a closed set has: a, b or c.
func oneOf[T ~string](all []T) string {
	var b strings.Builder
	for i, v := range all {
		switch {
		case i == 0:
		case i == len(all)-1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(string(v))
	}
	return b.String()
}

// onDeliveries says whether the filter asks for something that only deliveries has.
func (f *Filter) onDeliveries() bool {
	return f.Status != "" || f.Reason != "" || f.HTTPStatus != 0 || f.ErrorCode != ""
}

// onMessages says whether the filter asks for something that only messages has.
func (f *Filter) onMessages() bool {
	return f.KeyPrefix != "" || f.Topic != "" || !f.Since.IsZero() || !f.Until.IsZero()
}
