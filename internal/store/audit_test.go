package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

// An audit counts messages by their index alone: the table is too large to be read.
func TestAuditReadsNoMessages(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.save(batch(0, 400))
	proctest.Eventually(t, 30*time.Second, func() error {
		f.exec("VACUUM ferry.messages")
		if f.value("SELECT relallvisible = relpages FROM pg_class WHERE oid = 'ferry.messages'::regclass") != "true" {
			return errors.New("some page is not visible to all")
		}
		return nil
	})
	const read = `SELECT 'scans ' || seq_scan || ', rows fetched ' || idx_tup_fetch FROM pg_stat_user_tables WHERE relid = 'ferry.messages'::regclass`
	const looks = `SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'messages_position_idx'`
	// What a connection has read is told at the latest when it ends.
	f.store.Close()
	f.store = open(t, store.Config{URL: f.url})
	var before, used string
	proctest.Eventually(t, 30*time.Second, func() error {
		was := before + used
		if before, used = f.value(read), f.value(looks); before+used != was {
			return fmt.Errorf("the statistics still change: %s and %s after %s", before, used, was)
		}
		return nil
	})
	auditor, err := store.Open(t.Context(), store.Config{URL: f.url})
	if err != nil {
		t.Fatal(err)
	}
	a, err := auditor.Audit(t.Context(), time.Time{})
	auditor.Close()
	if err != nil || len(a.Damage) > 0 || a.Routes[0].Messages != 400 || a.Routes[0].Pending != 400 {
		t.Fatalf("%+v %v", a, err)
	}
	proctest.Eventually(t, 30*time.Second, func() error {
		if f.value(looks) == used {
			return errors.New("the index is not read")
		}
		return nil
	})
	if after := f.value(read); after != before {
		t.Errorf("of messages: %s before, %s after", before, after)
	}
}

// The limits of the pool are not those of an audit, which reads tables whole.
func TestAuditTakesItsTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.exec(`INSERT INTO ferry.deliveries (message_id, route) SELECT i, 'a' FROM generate_series(1, 60000) AS i`)
	for _, pollOnly := range []bool{false, true} {
		s := open(t, store.Config{URL: f.url + "&statement_timeout=1", PollOnly: pollOnly})
		proctest.Eventually(t, 30*time.Second, func() error { return s.Ping(t.Context()) }) // connecting has no limit of its own
		a, err := s.Audit(t.Context(), time.Time{})
		if err != nil || len(a.Damage) == 0 {
			t.Errorf("poll only %v: %v", pollOnly, err)
		}
	}
}
