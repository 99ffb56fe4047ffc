// Package riverjobs is the contract between the two tiers: the kinds of River jobs, their arguments and their queues.
// The ingester inserts them, the forwarder works them; an argument that is added must be optional, since both tiers of
// two versions run side by side during an upgrade.
package riverjobs

import (
	"time"

	"github.com/riverqueue/river"
)

// MaxAttempts is River's limit for every job of Ferry: so high that it never decides. Attempts are counted in
// deliveries.attempts, and the worker ends a job itself.
const MaxAttempts = 30_000

// ForwardArgs are the arguments of the job that delivers messages of one route. Its queue has the route's name.
type ForwardArgs struct {
	Route string `json:"route"`
	// IDs are the messages of the job: a group of new ones, or one that has a job of its own.
	IDs []int64 `json:"ids"`
	// Key is the message key of a job of its own, for people who read the job.
	Key string `json:"key,omitempty"`
	// Bytes is the size of the payloads together, so that memory can be reserved before they are loaded.
	Bytes int64 `json:"bytes,omitempty"`
	// Own marks the job of a single message that left its group.
	Own bool `json:"own,omitempty"`
}

// Kind returns "forward".
func (ForwardArgs) Kind() string { return "forward" }

// ForwardOpts are the insert options of a forward job.
func ForwardOpts(route string) *river.InsertOpts {
	return &river.InsertOpts{Queue: route, MaxAttempts: MaxAttempts}
}

// DeadLetters is the queue of all dead letters. Names that begin with ferry are kept for Ferry's own queues.
const DeadLetters = "ferry-dead-letters"

// DeadLetterArgs are the arguments of the job that writes the dead letter of one failure to Kafka. They are a snapshot of
// the failure, so that all runs of the job write the same, whatever becomes of the message meanwhile.
type DeadLetterArgs struct {
	MessageID  int64  `json:"message_id"`
	Route      string `json:"route"`
	Key        string `json:"key"` // message key
	Reason     string `json:"reason"`
	Detail     string `json:"detail,omitempty"`
	Attempts   int    `json:"attempts"`
	HTTPStatus int    `json:"http_status,omitempty"` // 0: there was no response
	ErrorCode  string `json:"error_code,omitempty"`
	Error      string `json:"error,omitempty"`
	// FailedAt is deliveries.settled_at of this failure, by which it is told from others of the message.
	FailedAt time.Time `json:"failed_at"`
	// Bytes is the size of key, value and headers, so that memory can be reserved before they are loaded.
	Bytes int64 `json:"bytes,omitempty"`
}

// Kind returns "dead_letter".
func (DeadLetterArgs) Kind() string { return "dead_letter" }

// InsertOpts are the insert options of every dead letter job.
func (DeadLetterArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: DeadLetters, MaxAttempts: MaxAttempts}
}
