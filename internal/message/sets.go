package message

// Verdict is how one delivery attempt ended.
type Verdict string

// The verdicts. What each does to the message and to its River job is the table in internal/forward.
const (
	Delivered Verdict = "delivered" // done
	Retry     Verdict = "retry"     // stays pending, an attempt is burnt
	Hold      Verdict = "hold"      // stays pending, no attempt is burnt
	Reject    Verdict = "reject"    // failed for good
)

// Verdicts returns all verdicts.
func Verdicts() []Verdict { return []Verdict{Delivered, Retry, Hold, Reject} }

// String returns the verdict's name in the route file, the database and the metrics.
func (v Verdict) String() string { return string(v) }

// Valid says whether v is one of Verdicts.
func (v Verdict) Valid() bool {
	switch v {
	case Delivered, Retry, Hold, Reject:
		return true
	}
	return false
}

// Status is the state of a message.
type Status string

// The states of a message.
const (
	StatusPending   Status = "pending"
	StatusDelivered Status = "delivered"
	StatusFailed    Status = "failed"
)

// Statuses returns all states.
func Statuses() []Status { return []Status{StatusPending, StatusDelivered, StatusFailed} }

// String returns the state's name in the database and the metrics.
func (s Status) String() string { return string(s) }

// Reason is why a message failed.
type Reason string

// The reasons, a closed set.
const (
	Rejected    Reason = "rejected"    // the destination refused it for good
	Exhausted   Reason = "exhausted"   // its attempts are used up
	Expired     Reason = "expired"     // older than max_age
	Undecodable Reason = "undecodable" // its payload can't be decoded
	Unmappable  Reason = "unmappable"  // its payload can't be mapped to a request
	Unstorable  Reason = "unstorable"  // the database refused the record
	Conflict    Reason = "conflict"    // its key belongs to a message with another payload
	Crashed     Reason = "crashed"     // it took its process down, again and again
	Cancelled   Reason = "cancelled"   // an operator cancelled its job or skipped it
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{Rejected, Exhausted, Expired, Undecodable, Unmappable, Unstorable, Conflict, Crashed, Cancelled}
}

// String returns the reason's name in the database and the metrics.
func (r Reason) String() string { return string(r) }

// IngestResult is what became of one record for one route when it was read.
type IngestResult string

// The results of reading a record. Conflicting and unstorable records are stored too, as failed messages.
const (
	IngestStored     IngestResult = "stored"
	IngestDuplicate  IngestResult = "duplicate"
	IngestConflict   IngestResult = "conflict"
	IngestFiltered   IngestResult = "filtered"
	IngestTombstone  IngestResult = "tombstone"
	IngestUnstorable IngestResult = "unstorable"
)

// IngestResults returns all results of reading a record.
func IngestResults() []IngestResult {
	return []IngestResult{IngestStored, IngestDuplicate, IngestConflict, IngestFiltered, IngestTombstone, IngestUnstorable}
}

// String returns the result's name in the metrics.
func (r IngestResult) String() string { return string(r) }

// ErrorClass names what kept a response from coming in whole; empty when nothing did.
type ErrorClass string

// The error classes, as response rules see them in `.error`.
const (
	ErrNone       ErrorClass = ""
	ErrTimeout    ErrorClass = "timeout"
	ErrConnect    ErrorClass = "connect"
	ErrTLS        ErrorClass = "tls"
	ErrDNS        ErrorClass = "dns"
	ErrReset      ErrorClass = "reset"
	ErrCanceled   ErrorClass = "canceled"
	ErrTooLarge   ErrorClass = "too_large"
	ErrIncomplete ErrorClass = "incomplete"
)

// ErrorClasses returns all classes but ErrNone.
func ErrorClasses() []ErrorClass {
	return []ErrorClass{ErrTimeout, ErrConnect, ErrTLS, ErrDNS, ErrReset, ErrCanceled, ErrTooLarge, ErrIncomplete}
}

// String returns the class's name.
func (c ErrorClass) String() string { return string(c) }

// BreakerState is what a route's breaker makes of its destination.
type BreakerState string

// The states of a breaker. What each means is in internal/forward/breaker.
const (
	BreakerHealthy  BreakerState = "healthy"
	BreakerDegraded BreakerState = "degraded"
	BreakerOpen     BreakerState = "open"
)

// BreakerStates returns all states of a breaker.
func BreakerStates() []BreakerState {
	return []BreakerState{BreakerHealthy, BreakerDegraded, BreakerOpen}
}

// String returns the state's name in the metrics and in /readyz.
func (s BreakerState) String() string { return string(s) }
