package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

// What the tests of the ingester alone share: load, what the group committed, and whether everything is there.

// quick is how ingesters join a group of the classic protocol whose dead members are to be noticed soon.
const quick = "session.timeout.ms=3000,heartbeat.interval.ms=300"

const messages = `SELECT count(*)::text FROM ferry.messages`

// kafkaConfig is the setting of librdkafka's properties.
func kafkaConfig(properties string) string { return "FERRY_KAFKA_CONFIG=" + properties }

// partition is one of the env's topic.
func (e *env) partition(n int32) message.TopicPartition {
	return message.TopicPartition{Topic: e.topic, Partition: n}
}

// none checks that a count is 0.
func (e *env) none(what, query string, args ...any) {
	e.t.Helper()
	if got, err := e.ask(query, args...); err != nil || got != "0" {
		e.t.Errorf("%s: %s %v", what, got, err)
	}
}

// stored waits until n records, m0 to m<n-1>, are stored, and checks that each is there once, that the ledger balances,
// that no record counts twice beyond the duplicates, and that rows and committed offsets stand at the partitions' ends.
func (e *env) stored(n int) {
	e.t.Helper()
	e.is(rescuePatience, fmt.Sprint(n), messages)
	e.atEnds()
	e.is(patience, fmt.Sprint(n), messages)
	e.none("ids that are missing", `SELECT count(*)::text FROM generate_series(0, $1::text::int - 1) AS i
		LEFT JOIN ferry.messages AS m ON m.message_key = 'm' || i WHERE m.id IS NULL`, fmt.Sprint(n))
	e.none("rows of the ledger that do not balance",
		`SELECT count(*)::text FROM ferry.ledger WHERE consumed <> stored + duplicates + filtered + skipped_tombstones`)
	e.none("messages that the ledger does not know",
		`SELECT abs((SELECT coalesce(sum(stored), 0) FROM ferry.ledger) - (SELECT count(*) FROM ferry.messages))::text`)
	e.none("messages without delivery",
		`SELECT count(*)::text FROM ferry.messages m LEFT JOIN ferry.deliveries d ON d.message_id = m.id WHERE d.message_id IS NULL`)
}

// duplicateReads is how many records were read again and stored no more.
func (e *env) duplicateReads() string {
	e.t.Helper()
	got, err := e.ask(`SELECT coalesce(sum(duplicates), 0)::text FROM ferry.ledger`)
	if err != nil {
		e.t.Error(err)
	}
	return got
}

// rows returns where the group stands by the database's word.
func (e *env) rows() (map[message.TopicPartition]int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	rows, err := e.pool.Query(ctx, `SELECT topic, partition, next_offset FROM ferry.positions WHERE "group" = $1`, e.group)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	at := map[message.TopicPartition]int64{}
	for rows.Next() {
		var tp message.TopicPartition
		var next int64
		if err := rows.Scan(&tp.Topic, &tp.Partition, &next); err != nil {
			return nil, err
		}
		at[tp] = next
	}
	return at, rows.Err()
}

// atEnds waits until the rows and the committed offsets of the env's topic stand at the partitions' ends.
func (e *env) atEnds() {
	e.t.Helper()
	ends := e.kafka.Ends(e.t, e.topic)
	proctest.Eventually(e.t, patience, func() error {
		at, err := e.rows()
		if err != nil {
			return err
		}
		committed := e.kafka.Committed(e.t, e.group)
		for tp, end := range ends {
			if end > 0 && (at[tp] != end || committed[tp].Offset != end) {
				return fmt.Errorf("%v ends at %d; its row says %d, Kafka %d", tp, end, at[tp], committed[tp].Offset)
			}
		}
		return nil
	})
}

// load produces each records at every tick until stop, which says how many there are. They are numbered from `from`.
func (e *env) load(from, each int, partitions int32, pace time.Duration) (stop func() int) {
	end, done := make(chan struct{}), make(chan struct{})
	n := from
	go func() {
		defer close(done)
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				e.produce(n, each, partitions)
				n += each
			}
		}
	}()
	var once sync.Once
	stop = func() int {
		once.Do(func() { close(end) })
		<-done
		return n
	}
	e.t.Cleanup(func() { stop() })
	return stop
}

// offsets is what the group committed over time.
type offsets struct {
	stop func()

	mu    sync.Mutex
	seen  map[message.TopicPartition][]int64 // each change
	ahead []string                           // committed before it was stored
}

// watchOffsets looks at the group's committed offsets, and at the rows after them, until stop.
func (e *env) watchOffsets() *offsets {
	o := &offsets{seen: map[message.TopicPartition][]int64{}}
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			committed := e.kafka.Committed(e.t, e.group)
			rows, err := e.rows() // behind Kafka's answer: what was committed by then must be in it
			o.note(committed, rows, err == nil)
			select {
			case <-end:
				return
			case <-tick.C:
			}
		}
	}()
	var once sync.Once
	o.stop = func() {
		once.Do(func() { close(end) })
		<-done
	}
	e.t.Cleanup(o.stop)
	return o
}

func (o *offsets) note(committed map[message.TopicPartition]kafkatest.CommittedOffset, rows map[message.TopicPartition]int64, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for tp, c := range committed {
		if seen := o.seen[tp]; len(seen) == 0 || seen[len(seen)-1] != c.Offset {
			o.seen[tp] = append(seen, c.Offset)
		}
		if known && c.Offset > rows[tp] {
			o.ahead = append(o.ahead, fmt.Sprintf("%v: %d committed and the row at %d", tp, c.Offset, rows[tp]))
		}
	}
}

// of returns the offsets that were seen of a partition, each change once.
func (o *offsets) of(tp message.TopicPartition) []int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.seen[tp])
}

// onlyForward stops the watch and checks that no offset went back or was ahead of what is stored.
func (o *offsets) onlyForward(t *testing.T) {
	t.Helper()
	o.stop()
	for tp, seen := range o.seen {
		if !slices.IsSorted(seen) {
			t.Errorf("%v: the committed offset went back: %v", tp, seen)
		}
	}
	if len(o.ahead) > 0 {
		t.Errorf("%d times an offset was committed that was not stored, first %s", len(o.ahead), o.ahead[0])
	}
}

// admin returns the base URL of a process's admin port.
func admin(p *proctest.Proc) string {
	p.WaitLog(`"message":"started"`, patience)
	_, rest, _ := strings.Cut(p.Log(), `"admin":"`)
	addr, _, _ := strings.Cut(rest, `"`)
	return "http://" + addr
}

// through is the setting of a database URL.
func through(url string) string { return "FERRY_DATABASE_URL=" + url }
