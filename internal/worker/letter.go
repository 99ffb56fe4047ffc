package worker

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/riverjobs"
)

// The headers that a dead letter has beside those of its record.
const (
	headerRoute           = "ferry-route"
	headerMessageKey      = "ferry-message-key"
	headerReason          = "ferry-reason"
	headerDetail          = "ferry-detail"
	headerAttempts        = "ferry-attempts"
	headerHTTPStatus      = "ferry-http-status"
	headerErrorCode       = "ferry-error-code"
	headerError           = "ferry-error"
	headerSourceTopic     = "ferry-source-topic"
	headerSourcePartition = "ferry-source-partition"
	headerSourceOffset    = "ferry-source-offset"
	headerSourceTimestamp = "ferry-source-timestamp"
	headerFailedAt        = "ferry-failed-at"
	headerValueOmitted    = "ferry-value-omitted"
	headerHeadersOmitted  = "ferry-headers-omitted"
	headerKeyOmitted      = "ferry-key-omitted"
)

// letterHeaders are all of them. Those that a record brings, because it was a dead letter before, are replaced, also where
// there is nothing to say this time: a status of then would be taken for one of now.
func letterHeaders() []string {
	return []string{
		headerRoute, headerMessageKey, headerReason, headerDetail, headerAttempts, headerHTTPStatus, headerErrorCode, headerError,
		headerSourceTopic, headerSourcePartition, headerSourceOffset, headerSourceTimestamp, headerFailedAt,
		headerValueOmitted, headerHeadersOmitted, headerKeyOmitted,
	}
}

// cut is how much of a record is left out of its dead letter because the topic does not take it, each more than the one
// before.
type cut int

const (
	cutNothing cut = iota
	cutValue
	cutHeaders
	cutKey
)

// letter makes the dead letter of a failure: the record as it came, with headers that say what became of it. Its content is
// equal at each try.
func letter(topic string, a riverjobs.DeadLetterArgs, l *store.DeadLetter, c cut) *message.Record {
	src := &l.Record
	out := &message.Record{Key: src.Key, Value: src.Value}
	out.Topic = topic
	own := letterHeaders()
	for _, h := range src.Headers {
		if !slices.Contains(own, h.Name) {
			out.Headers = append(out.Headers, h)
		}
	}
	var left []message.Header
	omit := func(name, text string) { left = append(left, message.Header{Name: name, Value: []byte(text)}) }
	if l.Stripped {
		omit(headerValueOmitted, fmt.Sprintf("the database refused the record, so that it was stored without key, headers and value; in Kafka it is %v", src.Position))
	}
	if c >= cutValue && len(src.Value) > 0 {
		out.Value = nil
		omit(headerValueOmitted, strconv.Itoa(len(src.Value))+" bytes, more than the topic takes")
	}
	if n := len(out.Headers); c >= cutHeaders && n > 0 {
		out.Headers = nil
		omit(headerHeadersOmitted, strconv.Itoa(n)+" headers, more than the topic takes")
	}
	if c >= cutKey && len(src.Key) > 0 {
		out.Key = nil
		omit(headerKeyOmitted, strconv.Itoa(len(src.Key))+" bytes, more than the topic takes")
	}
	out.Headers = append(append(out.Headers, story(a, src)...), left...)
	return out
}

// story is what a dead letter tells of its failure and of where its record came from. What there is not to tell is left
// out.
func story(a riverjobs.DeadLetterArgs, src *message.Record) []message.Header {
	var headers []message.Header
	add := func(name, value string) {
		if value != "" {
			headers = append(headers, message.Header{Name: name, Value: []byte(value)})
		}
	}
	add(headerRoute, a.Route)
	add(headerMessageKey, a.Key)
	add(headerReason, a.Reason)
	add(headerDetail, a.Detail)
	add(headerAttempts, strconv.Itoa(a.Attempts))
	if a.HTTPStatus != 0 {
		add(headerHTTPStatus, strconv.Itoa(a.HTTPStatus))
	}
	add(headerErrorCode, a.ErrorCode)
	add(headerError, a.Error)
	add(headerSourceTopic, src.Topic)
	add(headerSourcePartition, strconv.Itoa(int(src.Partition)))
	add(headerSourceOffset, strconv.FormatInt(src.Offset, 10))
	if !src.Timestamp.IsZero() {
		add(headerSourceTimestamp, src.Timestamp.UTC().Format(time.RFC3339Nano))
	}
	add(headerFailedAt, a.FailedAt.UTC().Format(time.RFC3339Nano))
	return headers
}

// shrinks says whether a cut leaves out more than the one before it.
func (c cut) shrinks(l *store.DeadLetter) bool {
	switch c {
	case cutNothing:
		return true
	case cutValue:
		return len(l.Record.Value) > 0
	case cutHeaders:
		return len(l.Record.Headers) > 0
	case cutKey:
		return len(l.Record.Key) > 0
	}
	return false
}

func (c cut) result() message.DeadLetterResult {
	switch c {
	case cutNothing:
		return message.DeadLetterDelivered
	case cutValue:
		return message.DeadLetterWithoutValue
	case cutHeaders, cutKey:
	}
	return message.DeadLetterWithoutRecord
}
