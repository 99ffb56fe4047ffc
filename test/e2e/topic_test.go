package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

// caughtUp waits until a process says that nothing is left to read of the env's partitions.
func (e *env) caughtUp(in *proctest.Proc, partitions int32) {
	e.t.Helper()
	for p := range partitions {
		proctest.Eventually(e.t, patience, func() error {
			if lag := metric(in, fmt.Sprintf(`ferry_ingest_lag{partition="%d",topic="%s"}`, p, e.topic)); lag != "0" {
				return fmt.Errorf("the lag of partition %d is %q", p, lag)
			}
			return nil
		})
	}
}

// record is record number i, for a partition.
func record(i int, partition int32) kafkatest.Record {
	return kafkatest.Record{Partition: partition, Value: []byte(fmt.Sprintf(`{"id":"m%d"}`, i))}
}

// Of a compacted topic what Kafka still has is stored, and the gaps between are neither a loss nor a lag.
func TestCompactedTopic(t *testing.T) {
	t.Parallel()
	const keys, rounds = 20, 10
	c := kafkatest.Real(t)
	e := newEnv(t, c, 1)
	e.topic = kafkatest.Name("compacted")
	c.CreateTopic(t, e.topic, 1, map[string]string{"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"})
	t.Cleanup(func() { c.DeleteTopic(t, e.topic) })
	e.writeRoutes(fmt.Sprintf(routeFile, e.topic, e.receiver.URL()))
	for round := range rounds {
		var records []kafkatest.Record
		for k := range keys {
			r := record(round*keys+k, 0)
			r.Key = []byte(fmt.Sprint(k))
			// A segment ends when a record is more than segment.ms younger than its first one.
			r.Timestamp = time.Now().Add(time.Duration(round-rounds) * time.Minute)
			records = append(records, r)
		}
		c.Produce(t, e.topic, records...)
	}
	var before []int64
	proctest.Eventually(t, 2*patience, func() error {
		if before = c.Visible(t, e.partition(0)); len(before) > 3*keys {
			return fmt.Errorf("%d of %d records left: not compacted yet", len(before), rounds*keys)
		}
		return nil
	})
	in := e.ingester()
	e.atEnds()
	after := c.Visible(t, e.partition(0)) // another cleaning may have come between
	e.caughtUp(in, 1)
	rows, err := e.pool.Query(t.Context(), `SELECT "offset" FROM ferry.messages ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	var stored []int64
	for rows.Next() {
		var o int64
		if err := rows.Scan(&o); err != nil {
			t.Fatal(err)
		}
		stored = append(stored, o)
	}
	for _, o := range stored {
		if !slices.Contains(before, o) {
			t.Errorf("offset %d is stored and was not there", o)
		}
	}
	for _, o := range after {
		if !slices.Contains(stored, o) {
			t.Errorf("offset %d is there and not stored", o)
		}
	}
	for k := range keys {
		if !slices.Contains(stored, int64((rounds-1)*keys+k)) {
			t.Errorf("the last record of key %d is not stored", k)
		}
	}
	e.is(patience, fmt.Sprint(len(stored)), `SELECT consumed::text FROM ferry.ledger`)
	t.Logf("%d of %d records were left", len(stored), rounds*keys)
}
