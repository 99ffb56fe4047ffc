package store_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
)

func TestCounts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	b := batch(0, 6)
	b.Incoming[1].Key = "key-0"
	b.Incoming[5].Route = "b"
	f.save(b)
	its := f.items()
	f.settle(outcome(its[0], message.StatusDelivered), outcome(its[1], message.StatusFailed))
	o := outcome(its[2], message.StatusDelivered)
	o.Forwarder = "another"
	f.settle(o)
	counts, err := f.store.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if counts["a"] != (store.Counts{Pending: 1, Delivered: 2, Failed: 2}) || counts["b"] != (store.Counts{Pending: 1}) || len(counts) != 2 {
		t.Errorf("%+v", counts)
	}
	// What is purged is no longer there, and was not pending.
	f.exec(`INSERT INTO ferry.purged (route, topic, topic_id, partition, delivered, failed)
		SELECT route, topic, topic_id, partition, 2, 1 FROM ferry.ledger WHERE route = 'a'`)
	if counts, err = f.store.Counts(t.Context()); err != nil || counts["a"] != (store.Counts{Pending: 1, Failed: 1}) {
		t.Errorf("after a purge: %+v, %v", counts, err)
	}
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	for _, v := range []store.Forwarder{{ID: "f", Version: "1"}, {ID: "f", Version: "2", Routes: []string{"a", "b"}}, {ID: "g"}} {
		if err := f.store.Heartbeat(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	f.want("SELECT array_agg(id || version || routes::text ORDER BY id) FROM ferry.forwarders", `{"f2{a,b}","g{}"}`)
}

func TestMessageStatus(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.want(`SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'ferry.message_status'::regclass`,
		"message_id route message_key lane topic partition offset produced_at received_at status reason detail attempts http_status error_code error next_attempt_at settled_at")
	f.save(batch(0, 2))
	f.settle(outcome(f.items()[0], message.StatusFailed))
	f.want(`SELECT string_agg(message_key || ' ' || status || ' ' || COALESCE(reason || http_status || error_code, ''), ', ' ORDER BY message_id) FROM ferry.message_status`,
		"key-0 failed rejected400998, key-1 pending ")
}

// Every table and column is explained to people who use psql.
func TestComments(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.want(`SELECT string_agg(c.relname || '.' || a.attname, ' ') FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relnamespace = 'ferry'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname NOT LIKE 'river%'
		AND a.attnum > 0 AND (col_description(c.oid, a.attnum) IS NULL OR obj_description(c.oid) IS NULL)`, "")
}

func TestEnsureAttemptPartitions(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.save(batch(0, 3))
	its := f.items()
	today := time.Now().UTC()
	settle := func(it *store.Item, at time.Time) {
		o := outcome(it, message.StatusDelivered)
		o.Attempt.StartedAt = at
		f.settle(o)
	}
	settle(its[0], today) // before there is a partition
	f.want("SELECT count(*) FROM ferry.attempts_default", "1")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := f.store.EnsureAttemptPartitions(t.Context(), today, 3); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	f.want("SELECT count(*) FROM pg_inherits WHERE inhparent = 'ferry.attempts'::regclass", "4")
	f.want("SELECT count(*) FROM ferry.attempts_default", "0")
	settle(its[1], today.AddDate(0, 0, 2))
	settle(its[2], today.AddDate(0, 0, 3))
	f.want("SELECT string_agg(tableoid::regclass::text, ' ' ORDER BY started_at) FROM ferry.attempts", strings.Join([]string{
		"ferry.attempts_" + today.Format("20060102"), "ferry.attempts_" + today.AddDate(0, 0, 2).Format("20060102"), "ferry.attempts_default",
	}, " "))
	// The index goes with it.
	f.want("SELECT count(*) FROM pg_indexes WHERE schemaname = 'ferry' AND tablename LIKE 'attempts_2%'", "3")
}
