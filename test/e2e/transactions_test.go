package e2e

import (
	"fmt"
	"testing"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
)

// Of transactions exactly the committed records are stored, and their markers leave no lag, wherever they stand.
func TestTransactions(t *testing.T) {
	t.Parallel()
	c := kafkatest.Real(t)
	e := newEnv(t, c, 3)
	x := c.Transactions(t)
	n := 0
	next := func(partition int32) kafkatest.Record { n++; return record(n-1, partition) }
	aborted := func(partition int32) kafkatest.Record {
		return kafkatest.Record{Partition: partition, Value: []byte(`{"id":"aborted"}`)}
	}
	// Partition 0 ends with the marker of a commit, 1 with that of an abort, 2 has only what was aborted.
	round := func() {
		x.Commit(e.topic, next(0), next(1), next(0))
		x.Abort(e.topic, aborted(0), aborted(1), aborted(2))
		x.Commit(e.topic, next(1))
		for range 3 {
			x.Abort(e.topic, aborted(0))
			x.Commit(e.topic, next(0))
		}
		x.Abort(e.topic, aborted(1))
	}
	round()
	in := e.ingester()
	e.is(patience, fmt.Sprint(n), messages)
	e.caughtUp(in, 3)
	for range 5 {
		round()
	}
	e.stored(n)
	e.caughtUp(in, 3)
	e.none("records of aborted transactions", `SELECT count(*)::text FROM ferry.messages WHERE message_key NOT LIKE 'm%'`)
	e.none("records too many", `SELECT (sum(consumed) - $1::text::int)::text FROM ferry.ledger`, fmt.Sprint(n))
	var offsets []int64
	for p := range int32(3) {
		offsets = append(offsets, c.Visible(t, e.partition(p))...)
	}
	if len(offsets) != n {
		t.Errorf("a consumer gets %d records, %d were committed", len(offsets), n)
	}
}
