package message

import "time"

// Message is a stored record on its way to its destination.
type Message struct {
	ID    int64
	Route string
	Key   string // message key, normalized
	Record
	ReceivedAt time.Time
	// KeyRevision counts the replays that asked for a new Idempotency-Key, which then ends in #r<n>.
	KeyRevision int
}

// Delivery is the state of a message's delivery as its job found it.
type Delivery struct {
	JobID         int64 // the job that owns it, 0 when none does
	Status        Status
	Reason        Reason
	Detail        string
	Attempts      int       // attempts that counted
	Requests      int       // all requests, held ones too
	DueFrom       time.Time // max_age counts from here
	NextAttemptAt time.Time // zero when nothing was sent yet
	// OwnSince is when its own job was made, about the time of its first fault (or of its replay); zero while the message
	// is in a group. A held message waits half of this age.
	OwnSince time.Time
}

// Attempt is one request that was sent (or tried to be), as the attempts table keeps it. Error and Response are clean
// (valid UTF-8, no NUL) and at most 1 KiB, ErrorCode at most 64 bytes.
type Attempt struct {
	StartedAt  time.Time
	Duration   time.Duration
	Verdict    Verdict
	HTTPStatus int        // 0 when there was no response
	ErrorClass ErrorClass // for metrics; Error begins with it
	ErrorCode  string
	Error      string
	Response   string
	Detail     string // a rule's own reason
}
