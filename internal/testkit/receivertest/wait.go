package receivertest

import (
	"testing"
	"time"
)

// Patience is how long WaitFor waits.
const Patience = 30 * time.Second

// WaitFor waits until cond holds; it is asked again whenever a request arrives or is answered. After Patience the test
// fails, naming what.
func (r *Receiver) WaitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	r.WaitUpTo(t, Patience, what, cond)
}

// WaitUpTo is WaitFor with a limit of its own.
func (r *Receiver) WaitUpTo(t testing.TB, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	late := false
	timer := time.AfterFunc(limit, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		late = true
		r.changed.Broadcast()
	})
	defer timer.Stop()
	for {
		// The count is taken before cond is asked: a request that arrives in between is not missed.
		r.mu.Lock()
		before, expired := len(r.requests)+r.answered, late
		r.mu.Unlock()
		if cond() {
			return
		}
		if expired {
			t.Fatalf("waited %s for %s: %d requests of %d keys arrived, %d were answered",
				limit, what, r.Count(), r.Keys(), r.Answered())
		}
		r.mu.Lock()
		for len(r.requests)+r.answered == before && !late {
			r.changed.Wait()
		}
		r.mu.Unlock()
	}
}

// WaitCount waits for n requests.
func (r *Receiver) WaitCount(t testing.TB, n int) {
	t.Helper()
	r.WaitFor(t, "requests", func() bool { return r.Count() >= n })
}

// WaitKeys waits for requests of n different keys.
func (r *Receiver) WaitKeys(t testing.TB, n int) {
	t.Helper()
	r.WaitFor(t, "keys", func() bool { return r.Keys() >= n })
}
