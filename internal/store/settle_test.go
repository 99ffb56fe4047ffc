package store_test

import (
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
)

func (f *fixture) items() []*store.Item {
	f.Helper()
	rows, err := f.store.Pool().Query(f.Context(), "SELECT id FROM ferry.messages ORDER BY id")
	if err != nil {
		f.Fatal(err)
	}
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			f.Fatal(err)
		}
		ids = append(ids, id)
	}
	if rows.Err() != nil {
		f.Fatal(rows.Err())
	}
	l, err := f.store.Load(f.Context(), ids)
	if err != nil {
		f.Fatal(err)
	}
	items := make([]*store.Item, len(ids))
	for i, id := range ids {
		items[i] = l.Items[id]
	}
	return items
}

func outcome(it *store.Item, status message.Status) store.Outcome {
	o := store.Outcome{
		MessageID: it.ID, JobID: it.JobID, Route: it.Route, Key: it.Message.Key, Bytes: int64(len(it.Value)), Status: status,
		Counted: true, Forwarder: "f1",
		Attempt: &message.Attempt{StartedAt: time.Now(), Duration: 12 * time.Millisecond, Verdict: message.Delivered, HTTPStatus: 200},
	}
	switch status {
	case message.StatusPending:
		o.NextAttemptAt = time.Now().Add(time.Minute)
		o.Attempt.Verdict, o.Attempt.HTTPStatus, o.Attempt.Error = message.Retry, 500, "internal server error"
	case message.StatusFailed:
		o.Reason, o.Attempt.Verdict, o.Attempt.HTTPStatus = message.Rejected, message.Reject, 400
	case message.StatusDelivered:
	}
	return o
}

func (f *fixture) settle(o ...store.Outcome) []store.Settled {
	f.Helper()
	s, err := f.store.Settle(f.Context(), o)
	if err != nil {
		f.Fatal(err)
	}
	f.ledgerHolds()
	return s
}

func TestSettle(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	f.save(batch(0, 4))
	its := f.items()
	got := f.settle(outcome(its[0], message.StatusDelivered), outcome(its[1], message.StatusPending), outcome(its[2], message.StatusFailed))
	for i, s := range got {
		if !s.Passed || s.Err != nil {
			t.Errorf("outcome %d: %+v", i, s)
		}
	}
	if got[0].JobID != its[0].JobID || got[1].JobID == its[1].JobID || got[2].JobID == its[2].JobID {
		t.Errorf("jobs %+v", got)
	}
}
