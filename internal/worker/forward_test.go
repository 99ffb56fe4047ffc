package worker_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/forward"
	"github.com/ferry-forward/ferry/internal/message"
)

const (
	statusOf = `SELECT status || ' ' || coalesce(reason, '-') || ' ' || attempts || ' ' || requests FROM ferry.deliveries d JOIN ferry.messages m ON m.id = d.message_id WHERE m.message_key = $1`
	jobOf    = `SELECT j.state::text FROM ferry.river_job j JOIN ferry.deliveries d ON d.job_id = j.id JOIN ferry.messages m ON m.id = d.message_id WHERE m.message_key = $1`
	ownOf    = `SELECT coalesce(j.args->>'own', 'false') FROM ferry.river_job j JOIN ferry.deliveries d ON d.job_id = j.id JOIN ferry.messages m ON m.id = d.message_id WHERE m.message_key = $1`
)

// A group whose messages end in every way: each that is not delivered goes on in a job of its own, and River shows it.
func TestGroupEndsInEveryWay(t *testing.T) {
	t.Parallel()
	g := newRig(t, 20)
	g.add(6)
	g.start(options{}, func(_ context.Context, m *message.Message, d *message.Delivery) forward.Result {
		switch m.Key {
		case "k1":
			if d.Requests == 0 {
				return retryIn(30 * time.Millisecond)
			}
			if d.OwnSince.IsZero() {
				return failed(message.Rejected, message.Reject, 400) // a hold could not tell how long the trouble has lasted
			}
			return delivered()
		case "k2":
			return holdFor(time.Hour)
		case "k3":
			return failed(message.Rejected, message.Reject, 400)
		case "k4":
			return forward.Result{Status: message.StatusFailed, Reason: message.Undecodable, Detail: "not JSON"}
		case "k5":
			return failed(message.Exhausted, message.Retry, 500)
		}
		return delivered()
	})
	g.is("delivered - 1 1", statusOf, "k0")
	g.is("delivered - 2 2", statusOf, "k1")
	g.is("pending - 0 1", statusOf, "k2")
	g.is("failed rejected 1 1", statusOf, "k3")
	g.is("failed undecodable 0 0", statusOf, "k4")
	g.is("failed exhausted 1 1", statusOf, "k5")
	g.is("completed", jobOf, "k0")
	g.is("completed", jobOf, "k1")
	g.is("scheduled", jobOf, "k2")
	g.is("cancelled", jobOf, "k3")
	g.is("cancelled", jobOf, "k4")
	g.is("discarded", jobOf, "k5")
	for _, k := range []string{"k1", "k2", "k3", "k4", "k5"} {
		g.is("true", ownOf, k)
	}
	g.is("6", `SELECT count(*)::text FROM ferry.attempts`)
	g.is("3", `SELECT count(*)::text FROM ferry.failures`)
	if n := g.count("k3").Load(); n != 1 {
		t.Errorf("the rejected message was sent %d times", n)
	}
}

// An own job's retries are River's, with the time that the outcome was stored with, until the last one discards it.
func TestOwnJobRetriesUntilDiscarded(t *testing.T) {
	t.Parallel()
	g := newRig(t, 1)
	g.add(1)
	g.start(options{jobSize: 1}, func(_ context.Context, _ *message.Message, d *message.Delivery) forward.Result {
		if d.Attempts == 3 {
			return failed(message.Exhausted, message.Retry, 500)
		}
		return retryIn(60 * time.Millisecond)
	})
	g.is("failed exhausted 4 4", statusOf, "k0")
	g.is("discarded", jobOf, "k0")
	g.is("3", `SELECT array_length(errors, 1)::text FROM ferry.river_job j JOIN ferry.deliveries d ON d.job_id = j.id`)
	g.is("4", `SELECT count(*)::text FROM ferry.attempts WHERE counted`)
}

// A run handles only pending messages that its job owns.
func TestJobThatDoesNotOwnSendsNothing(t *testing.T) {
	t.Parallel()
	g := newRig(t, 20)
	g.add(3)
	g.exec(`UPDATE ferry.deliveries d SET job_id = 999999 FROM ferry.messages m WHERE m.id = d.message_id AND m.message_key = 'k1'`)
	g.exec(`UPDATE ferry.deliveries d SET status = 'delivered', settled_at = now() FROM ferry.messages m WHERE m.id = d.message_id AND m.message_key = 'k2'`)
	g.start(options{}, func(context.Context, *message.Message, *message.Delivery) forward.Result { return delivered() })
	g.is("delivered - 1 1", statusOf, "k0")
	g.is("completed", jobOf, "k0")
	g.is("pending - 0 0", statusOf, "k1")
	if g.count("k1").Load()+g.count("k2").Load() != 0 {
		t.Error("a message was sent by a job that does not own it, or after it was delivered")
	}
}

// A group whose run died is split before anything is sent, and a message that dies again and again is given up alone.
func TestDeadGroupIsSplit(t *testing.T) {
	t.Parallel()
	g := newRig(t, 20)
	g.add(3)
	g.exec(`UPDATE ferry.river_job SET attempt = 1, errors = array_append(errors, jsonb_build_object('at', now(), 'attempt', 1, 'error', 'Stuck job rescued by JobRescuer', 'trace', ''))`)
	g.start(options{}, func(_ context.Context, m *message.Message, _ *message.Delivery) forward.Result {
		if m.Key == "k1" {
			panic("poison \x00")
		}
		return delivered()
	})
	g.is("delivered - 1 1", statusOf, "k0")
	g.is("delivered - 1 1", statusOf, "k2")
	g.is("failed crashed 0 0", statusOf, "k1")
	g.is("cancelled", jobOf, "k1")
	g.is("true", ownOf, "k0")
	if n := g.count("k1").Load(); n != 3 {
		t.Errorf("the poison was tried %d times, want 3", n)
	}
}

// A panic in a group sends the group the same way: split, and the guilty one fails alone.
func TestPanicInGroup(t *testing.T) {
	t.Parallel()
	g := newRig(t, 20)
	g.add(5)
	g.start(options{}, func(_ context.Context, m *message.Message, _ *message.Delivery) forward.Result {
		if m.Key == "k3" {
			panic("boom")
		}
		return delivered()
	})
	g.is("failed crashed 0 0", statusOf, "k3")
	g.is("4", `SELECT count(*)::text FROM ferry.deliveries WHERE status = 'delivered'`)
	for _, k := range []string{"k0", "k1", "k2", "k4"} {
		if n := g.count(k).Load(); n != 1 {
			t.Errorf("%s was sent %d times", k, n)
		}
	}
}

// River lets a late result overwrite the state of a newer run; a run that outlived its time therefore returns none.
func TestLateRunChangesNothing(t *testing.T) {
	t.Parallel()
	g := newRig(t, 20)
	g.add(1)
	var runs atomic.Int64
	lateSent, newSent := make(chan struct{}), make(chan struct{})
	lateMayEnd, newMayEnd := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { closeOnce(lateMayEnd); closeOnce(newMayEnd) })
	g.start(options{jobTime: 2 * time.Second, rescueAfter: 3 * time.Second}, func(context.Context, *message.Message, *message.Delivery) forward.Result {
		switch runs.Add(1) {
		case 1:
			return holdFor(0) // so that the message gets a job of its own
		case 2:
			close(lateSent)
			<-lateMayEnd
			return holdFor(time.Hour) // stored under the fence, for it is true; of no account to River
		}
		close(newSent)
		<-newMayEnd
		return delivered()
	})
	g.wait(lateSent)
	const own = ` FROM ferry.river_job WHERE args->>'own' = 'true'`
	g.is("true", `SELECT (attempted_at < now() - interval '2600 ms')::text`+own)
	// What the rescuer does, without waiting for its round of 30 s.
	g.exec(`UPDATE ferry.river_job SET state = 'available', scheduled_at = now(), errors = array_append(errors, jsonb_build_object('at', now(), 'attempt', 1, 'error', 'Stuck job rescued by JobRescuer', 'trace', '')) WHERE args->>'own' = 'true'`)
	g.wait(newSent)
	close(lateMayEnd)
	g.is("pending - 0 2", statusOf, "k0")
	g.is("running", `SELECT state::text`+own)
	close(newMayEnd)
	g.is("delivered - 1 3", statusOf, "k0")
	g.is("completed", `SELECT state::text`+own)
}

// Capacity is counted in messages: no more requests in flight than the route's concurrency, whatever the jobs' sizes.
func TestConcurrencyCountsMessages(t *testing.T) {
	t.Parallel()
	g := newRig(t, 20)
	g.add(200)
	var now, most atomic.Int64
	g.start(options{concurrency: 7}, func(context.Context, *message.Message, *message.Delivery) forward.Result {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		defer now.Add(-1)
		<-time.After(2 * time.Millisecond)
		return delivered()
	})
	g.is("200", `SELECT count(*)::text FROM ferry.deliveries WHERE status = 'delivered'`)
	if m := most.Load(); m != 7 {
		t.Errorf("%d requests in flight at most, want 7", m)
	}
}

// A slow destination: what has no permit in time for its request to end within the job's time is not sent, and rests.
func TestNoPermitInTime(t *testing.T) {
	t.Parallel()
	g := newRig(t, 20)
	g.add(40)
	release := make(chan struct{})
	g.start(options{concurrency: 2, jobTime: 2 * time.Second, rescueAfter: 30 * time.Second}, func(ctx context.Context, _ *message.Message, _ *message.Delivery) forward.Result {
		select {
		case <-release:
			return delivered()
		case <-ctx.Done():
			return forward.Result{Status: message.StatusPending, Aborted: true}
		}
	})
	g.is("true", `SELECT (count(*) = 2)::text FROM ferry.river_job WHERE (metadata->>'snoozes')::int >= 1`)
	close(release)
	g.is("40", `SELECT count(*)::text FROM ferry.deliveries WHERE status = 'delivered'`)
	g.is("40", `SELECT sum(attempts)::text FROM ferry.deliveries`)
}

// A graceful stop gives back at once what waits, and lets requests in flight end.
func TestDrain(t *testing.T) {
	t.Parallel()
	g := newRig(t, 20)
	g.add(60)
	inFlight, release := make(chan struct{}, 100), make(chan struct{})
	f := g.start(options{concurrency: 3}, func(context.Context, *message.Message, *message.Delivery) forward.Result {
		inFlight <- struct{}{}
		<-release
		return delivered()
	})
	for range 3 {
		<-inFlight
	}
	stopped := make(chan struct{})
	go func() { f.stop(t); close(stopped) }()
	g.is("true", `SELECT (count(*) FILTER (WHERE state = 'available') >= 1)::text FROM ferry.river_job`)
	close(release)
	<-stopped
	g.is("3", `SELECT count(*)::text FROM ferry.deliveries WHERE status = 'delivered'`)
	g.is("0", `SELECT count(*)::text FROM ferry.river_job WHERE state = 'running'`)
	g.is("57", `SELECT count(*)::text FROM ferry.deliveries WHERE status = 'pending' AND requests = 0`)
}

// Whatever a destination sends, River's completer goes on: one NUL in an error text would stop it for the process.
func TestHostileErrorText(t *testing.T) {
	t.Parallel()
	g := newRig(t, 1)
	g.add(3)
	hostile := "a\x00b\xff" + strings.Repeat("ü", 3000)
	g.start(options{jobSize: 1}, func(_ context.Context, m *message.Message, _ *message.Delivery) forward.Result {
		if m.Key == "k0" {
			r := failed(message.Rejected, message.Reject, 400)
			r.Detail, r.Attempt.Error, r.Attempt.Response, r.Attempt.ErrorCode = hostile, hostile, hostile, hostile
			return r
		}
		return delivered()
	})
	g.is("failed rejected 1 1", statusOf, "k0")
	g.is("cancelled", jobOf, "k0")
	g.is("completed", jobOf, "k1")
	g.is("completed", jobOf, "k2")
}
