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

// A topic is deleted and created again, longer or shorter than it was, under a running ingester or while there is none:
// every record of the new one is stored, whatever its offset means in the old one.
func TestTopicMadeAgain(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]madeAgain{
		"longer, running":  {before: 50, after: 200, running: true},
		"longer, stopped":  {before: 50, after: 200},
		"shorter, running": {before: 200, after: 50, running: true},
		"shorter, stopped": {before: 200, after: 50},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kafkatest.Both(t, again.run)
		})
	}
}

// madeAgain is a topic that had so many records and then, under the same name, so many others.
type madeAgain struct {
	before, after int
	running       bool
}

func (m madeAgain) run(t *testing.T, c *kafkatest.Cluster) {
	e := newEnv(t, c, 1)
	eager := kafkaConfig(quick + ",partition.assignment.strategy=range") // a rebalance assigns everything anew
	procs := []*proctest.Proc{e.ingester(eager)}
	e.produce(0, m.before, 1)
	e.stored(m.before)
	if !m.running {
		if code, _ := procs[0].Term(patience); code != 0 {
			t.Errorf("the ingester ended with %d", code)
		}
	}
	c.DeleteTopic(t, e.topic)
	c.CreateTopic(t, e.topic, 1, nil)
	e.produce(m.before, m.after, 1)
	began := time.Now()
	if !m.running || (m.after > m.before && !full) {
		// Offsets that go on tell a running ingester nothing: it looks at the topic's id once a minute, and at an assignment.
		procs = append(procs, e.ingester(eager))
	}
	e.stored(m.before + m.after)
	t.Logf("all there after %v, %s read twice", time.Since(began).Round(time.Second/10), e.duplicateReads())
	e.is(patience, "2", `SELECT count(DISTINCT topic_id)::text FROM ferry.messages`)
	e.is(patience, "2", `SELECT count(*)::text FROM ferry.ledger`)
	told := 0
	for _, p := range procs {
		if n := len(logLines(p, "warn", "created again")); n > 0 {
			told += n
			e.caughtUp(p, 1)
		}
	}
	if told != 1 {
		t.Errorf("it was told %d times", told)
	}
}
