package kafka

import (
	"fmt"
	"strings"
	"time"

	ck "github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// Error is an error that librdkafka goes on after.
type Error struct {
	err  ck.Error
	text string
}

// Error is librdkafka's text, with what else is known.
func (e *Error) Error() string { return e.text }

// Unwrap returns the error of confluent-kafka-go.
func (e *Error) Unwrap() error { return e.err }

// Refused says that Kafka does not let this process into the group, or at a topic, as it is set up: an operator has to
// do something. Until then librdkafka tries again and again. A connection that is refused (certificate, login) is not
// meant: nothing at all can be asked of Kafka then, and whoever asks is told.
func (e *Error) Refused() bool {
	switch e.err.Code() {
	case ck.ErrTopicAuthorizationFailed, ck.ErrGroupAuthorizationFailed, ck.ErrClusterAuthorizationFailed,
		ck.ErrInvalidSessionTimeout, ck.ErrInconsistentGroupProtocol, ck.ErrInvalidGroupID, ck.ErrGroupMaxSizeReached:
		return true
	}
	return false
}

// troubles makes errors of librdkafka speak. That no broker can be reached comes without the reason, which was told
// before, once: librdkafka holds repeats back.
type troubles struct {
	certs  *inspector
	tokens bool   // the login is by tokens of an issuer
	reason string // why a connection failed, the last one
	verify bool   // it may be the certificate
	at     time.Time
}

// reasonAge is how long a reason stands for what follows.
const reasonAge = 5 * time.Minute

func (t *troubles) explain(e ck.Error) *Error {
	text := withoutDetail(e.Error())
	switch e.Code() {
	case ck.ErrAllBrokersDown:
		if t.reason == "" || time.Since(t.at) > reasonAge {
			// A broker that closes the connection at once tells nothing else.
			return &Error{e, text + "; check FERRY_KAFKA_BROKERS, and that security.protocol is the one that is spoken there"}
		}
		return &Error{e, text + ": " + t.because()}
	case ck.ErrBadMsg, ck.ErrBadCompression:
		// librdkafka reads it again and again, and does not go on behind it. It names the offset; confluent-kafka-go
		// keeps the partition to itself.
		text += "; its partition is the one whose ferry_ingest_lag does not fall: repair it in Kafka, or go past it with ingester skip"
	case ck.ErrSsl:
		t.certs.look()
		t.reason, t.verify, t.at = text, true, time.Now()
		text = t.because()
	case ck.ErrAuthentication:
		if t.tokens { // the broker only says that a token is no good
			text += "; see whether sasl.oauthbearer.token.endpoint.url gives out tokens"
		}
		t.reason, t.verify, t.at = text, false, time.Now()
	case ck.ErrTransport, ck.ErrResolve, ck.ErrSaslAuthenticationFailed, ck.ErrUnsupportedSaslMechanism:
		t.reason, t.verify, t.at = text, false, time.Now()
	}
	return &Error{e, text}
}

// because is the reason, with what is wrong with the certificate.
func (t *troubles) because() string {
	if found := t.certs.found(); t.verify && found != "" {
		return t.reason + "; " + found
	}
	return t.reason
}

// withoutDetail cuts off what librdkafka puts behind an error, as in " (after 3ms in state CONNECT)". It differs each
// time, and would make each line of the log a new one.
func withoutDetail(text string) string {
	if i := strings.LastIndex(text, " (after "); i > 0 && strings.HasSuffix(text, ")") {
		return text[:i]
	}
	return text
}

// fatal words an error after which the consumer is of no use any more.
func fatal(e ck.Error) error {
	switch e.Code() {
	case ck.ErrFencedInstanceID:
		return fmt.Errorf("another process joined the group under the same group.instance.id: %w; give each process its own", e)
	case ck.ErrUnreleasedInstanceID:
		return fmt.Errorf("another process is in the group under the same group.instance.id: %w; give each process its own "+
			"(if it is one that was killed, start again when its session is over: group.consumer.session.timeout.ms of the brokers)", e)
	case ck.ErrUnsupportedAssignor:
		return fmt.Errorf("the brokers do not have this group.remote.assignor: %w; leave it out, or set uniform or range", e)
	}
	return fmt.Errorf("the Kafka consumer can't go on: %w; start the process again", e)
}
