// Package riverjobs is the contract between the two tiers: the kinds of River jobs, their arguments and their queues.
// The ingester inserts them, the forwarder works them; an argument that is added must be optional, since both tiers of
// two versions run side by side during an upgrade.
package riverjobs

import "github.com/riverqueue/river"

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
