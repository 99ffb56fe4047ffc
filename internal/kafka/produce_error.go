package kafka

import (
	"errors"
	"time"

	ck "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/ferry-forward/ferry/internal/message"
)

// ProduceError says why a record is not known to be in Kafka.
type ProduceError struct {
	Topic string
	err   error
	text  string
}

// Error says what is wrong and what to do.
func (e *ProduceError) Error() string { return "writing to topic " + e.Topic + ": " + e.text }

// Unwrap returns the error of confluent-kafka-go.
func (e *ProduceError) Unwrap() error { return e.err }

func (e *ProduceError) code() ck.ErrorCode {
	var ce ck.Error
	if errors.As(e.err, &ce) {
		return ce.Code()
	}
	return ck.ErrFail
}

// TooLarge says that the topic takes no record of this size.
func (e *ProduceError) TooLarge() bool {
	switch e.code() {
	case ck.ErrMsgSizeTooLarge, ck.ErrRecordListTooLarge, ck.ErrInvalidMsgSize:
		return true
	}
	return false
}

// NoTopic says that there is no such topic.
func (e *ProduceError) NoTopic() bool {
	switch e.code() {
	case ck.ErrUnknownTopic, ck.ErrUnknownTopicOrPart, ck.ErrUnknownPartition, ck.ErrUnknownTopicID, ck.ErrTopicException:
		return true
	}
	return false
}

// Odd says that something is wrong with this record, so that others may well be taken.
func (e *ProduceError) Odd() bool {
	switch e.code() {
	case ck.ErrInvalidRecord, ck.ErrInvalidMsg, ck.ErrInvalidTimestamp:
		return true
	}
	return e.TooLarge()
}

// troubleAge is how long what librdkafka said stands for what follows.
const troubleAge = time.Minute

// failed words an error of librdkafka for a record.
func (g *producing) failed(r *message.Record, err error) *ProduceError {
	e := &ProduceError{Topic: r.Topic, err: err, text: err.Error()}
	code := e.code()
	if errors.Is(err, errLimit) {
		code = ck.ErrMsgTimedOut
	}
	switch code {
	case ck.ErrUnknownTopic, ck.ErrUnknownTopicOrPart, ck.ErrUnknownPartition, ck.ErrUnknownTopicID:
		e.text = "there is no such topic; create it"
	case ck.ErrTopicAuthorizationFailed:
		e.text += "; let this user write to the topic"
	case ck.ErrClusterAuthorizationFailed:
		e.text += "; let this user write idempotently (IdempotentWrite on the cluster)"
	case ck.ErrInvalidRecord, ck.ErrInvalidMsg:
		e.text += "; a topic for dead letters must have cleanup.policy=delete, since a compacted one takes no record without a key"
	case ck.ErrInvalidTimestamp:
		e.text += "; set this host's clock"
	case ck.ErrMsgTimedOut, ck.ErrTransport, ck.ErrAllBrokersDown:
		e.text = "Kafka did not take it in time"
		g.mu.Lock()
		if time.Since(g.at) < troubleAge {
			e.text += ": " + g.trouble
		}
		g.mu.Unlock()
	}
	return e
}
