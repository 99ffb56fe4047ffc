package e2e

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/proctest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// Forwarders are frozen until River's leader takes their jobs for lost, and run on where they were beside the one that
// works them by then: in the middle of loading, with requests in flight and others waiting for their turn, and in the
// middle of storing outcomes. They send nothing any more, so that only what was in flight comes twice.
func TestFrozenForwarders(t *testing.T) {
	t.Parallel()
	d := newDestinations(t, "loading", "sending", "storing")
	for route := range d.at {
		d.store(route, 80) // as many as a forwarder takes at a time
	}
	d.at["sending"].Always(receivertest.Hang())
	release := d.lock(`LOCK TABLE ferry.messages IN ACCESS EXCLUSIVE MODE`)
	loading := d.forwarder("FERRY_ROUTE_NAMES=loading")
	d.blocked()
	// Once it has made the partitions, the default one and seven days', it holds no lock that the others wait for.
	d.is(patience, "true", `SELECT (count(*) >= 8)::text FROM pg_inherits WHERE inhparent = 'ferry.attempts'::regclass`)
	freeze(t, loading)
	release() // its messages come while it is frozen
	release = d.lock(`LOCK TABLE ferry.attempts IN SHARE MODE`)
	others := d.forwarder("FERRY_ROUTE_NAMES=sending,storing")
	d.at["sending"].WaitCount(t, 20)
	d.at["storing"].WaitCount(t, 20)
	d.blocked()
	freeze(t, others)
	release()                // its transaction goes on as far as the server can without it
	d.at["sending"].Forget() // both from here on: what comes is the heir's
	d.at["storing"].Forget()
	for _, r := range d.at {
		r.Always(receivertest.Status(200).After(100 * time.Millisecond))
	}

	<-time.After(25 * time.Second) // the time is the case: a job counts as lost after 24 s
	heir := d.forwarder()
	d.is(rescuePatience, "0", `SELECT count(*)::text FROM ferry.river_job WHERE kind = 'forward' AND args->>'own' IS NULL AND state <> 'completed'`)
	loading.Thaw()
	others.Thaw()
	for route, r := range d.at {
		d.ends(route)
		d.is(patience, "0", count+"attempts <> 1", route)
		if n := r.Count(); n != 80 {
			t.Errorf("%s: %d requests for 80 messages since the freeze", route, n)
		}
	}
	others.WaitLog("an outcome came too late and changes nothing", patience)
	d.is(patience, "0", `SELECT count(*)::text FROM ferry.river_job WHERE kind = 'forward' AND state <> 'completed'`)
	// They work on.
	heir.Term(patience)
	for route, r := range d.at {
		d.store(route, 20)
		d.ends(route)
		if n := r.Count(); n != 100 {
			t.Errorf("%s: %d requests for 100 messages since the freeze", route, n)
		}
	}
	if !loading.Running() || !others.Running() {
		t.Error("a forwarder ended")
	}
}

// freeze freezes a process and waits until it stands still, which the signal alone does not.
func freeze(t *testing.T, p *proctest.Proc) {
	t.Helper()
	url := admin(p) + "/livez"
	p.Freeze()
	client := http.Client{Timeout: time.Second}
	proctest.Eventually(t, patience, func() error {
		resp, err := client.Get(url)
		if err != nil {
			return nil //nolint:nilerr // it does not answer any more
		}
		_ = resp.Body.Close()
		return errors.New("it still answers")
	})
}
