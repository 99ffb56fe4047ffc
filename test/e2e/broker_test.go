package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

// All brokers are away: the ingester stays and goes on when they are back, and those that are to stop meanwhile do. Then
// the broker is silent while the ingester is to stop.
func TestBrokersAway(t *testing.T) {
	t.Parallel()
	c, broker := ownBroker(t)
	e := newEnv(t, c, 3)
	in := e.ingester("FERRY_SHUTDOWN_TIMEOUT=5s", kafkaConfig(quick+",reconnect.backoff.max.ms=1000"))
	e.produce(0, 30, 3)
	e.stored(30)
	ready(t, in, 200, "")
	others := []*proctest.Proc{e.ingester("FERRY_SHUTDOWN_TIMEOUT=5s"), e.ingester("FERRY_SHUTDOWN_TIMEOUT=5s")}
	for _, p := range others {
		p.WaitLog("partitions assigned", patience)
	}
	broker.Stop()
	stopped := func(p *proctest.Proc) {
		if code, took := p.Term(patience); code != 0 || took > 6*time.Second {
			t.Errorf("without brokers the ingester ended with %d after %v", code, took)
		}
	}
	stopped(others[0]) // it may not have noticed yet
	ready(t, in, 503, `"kafka":{"ok":false`)
	if code, body := get(admin(in) + "/livez"); code != 200 {
		t.Errorf("livez %d: %s", code, body)
	}
	stopped(others[1])
	outlast(2 * time.Minute)
	if err := broker.Start(); err != nil {
		t.Fatal(err)
	}
	e.produce(30, 30, 3)
	e.stored(60)
	ready(t, in, 200, "")
	if !in.Running() {
		t.Fatal("the ingester ended")
	}

	// Stored, and perhaps not committed: the silence begins somewhere in between.
	e.produce(60, 300, 3)
	e.is(patience, "true", `SELECT (count(*) > 60)::text FROM ferry.messages`)
	if err := broker.Freeze(); err != nil {
		t.Fatal(err)
	}
	if code, took := in.Term(patience); code != 0 || took > 6*time.Second {
		t.Errorf("with a silent broker the ingester ended with %d after %v", code, took)
	}
	if err := broker.Thaw(); err != nil {
		t.Fatal(err)
	}
	e.ingester()
	e.stored(360)
	if d := e.duplicateReads(); d != "0" {
		t.Errorf("%s records were read twice", d)
	}
}

// A topic gets a second partition under a live group, and records at once: they are read from the first one on.
func TestNewPartition(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		e := newEnv(t, c, 1)
		in := e.ingester()
		e.produce(0, 10, 1)
		e.stored(10)
		c.AddPartitions(t, e.topic, 2)
		var records []kafkatest.Record
		for i := range 10 {
			records = append(records, kafkatest.Record{Partition: 1, Value: []byte(fmt.Sprintf(`{"id":"m%d"}`, 10+i))})
		}
		c.Produce(t, e.topic, records...)
		e.stored(20)
		if !in.Running() {
			t.Error("the ingester ended")
		}
	})
}

// Records of very different sizes in one partition: none holds up the others.
func TestOversized(t *testing.T) {
	t.Parallel()
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		e := newEnv(t, c, 1)
		if c.Fake == nil {
			e.topic = kafkatest.Name("oversized")
			c.CreateTopic(t, e.topic, 1, map[string]string{"max.message.bytes": "10000000"})
			t.Cleanup(func() { c.DeleteTopic(t, e.topic) })
			e.writeRoutes(fmt.Sprintf(routeFile, e.topic, e.receiver.URL()))
		}
		sizes := []int{1, 900_000, 5_000_000, 1}
		for i, size := range sizes {
			c.Produce(t, e.topic, kafkatest.Record{Value: bytes.Repeat([]byte{byte('1' + i)}, size)})
		}
		e.ingester()
		e.forwarder()
		e.is(patience, "4", delivered)
		e.atEnds()
		got := map[string]int{}
		for _, r := range e.receiver.Requests() {
			got[string(r.Body[:1])] = len(r.Body)
		}
		for i, size := range sizes {
			if n := got[strconv.Itoa(1+i)]; n != size {
				t.Errorf("record %d of %d bytes was received with %d", i, size, n)
			}
		}
		e.is(patience, "4 4", `SELECT consumed || ' ' || stored FROM ferry.ledger`)
	})
}

// An ingester that finds a backlog of large records stays within 256 MiB.
func TestBacklogStart(t *testing.T) {
	t.Parallel()
	const size, limit = 175_000, 256 << 10 // bytes, KiB
	n := 2000
	if full {
		n = 4000
	}
	plain := &proctest.Binaries{Plain: true} // the race detector needs a multiple of the memory
	t.Cleanup(plain.Clean)
	path := plain.Path(t, "ingester")
	e := newEnv(t, kafkatest.Real(t), 4)
	e.backlog(n, size)
	in := proctest.Start(t, path, append(e.common(), "FERRY_LOG_LEVEL=info", "FERRY_KAFKA_BROKERS="+e.brokers,
		"FERRY_KAFKA_GROUP="+e.group, "FERRY_ADMIN_ADDR=127.0.0.1:0"), "run")
	e.stored(n)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", in.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	peak := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if peak == nil {
		t.Fatalf("no VmHWM:\n%s", status)
	}
	if kib, err := strconv.Atoi(string(peak[1])); err != nil || kib > limit {
		t.Errorf("%d KiB at the most, over %d", kib, limit)
	}
	t.Logf("%d records of %d bytes: %s KiB at the most", n, size, peak[1])
}

// backlog produces n records of a size, which do not compress.
func (e *env) backlog(n, size int) {
	e.t.Helper()
	noise := make([]byte, 3*size)
	if _, err := rand.Read(noise); err != nil {
		e.t.Fatal(err)
	}
	text := base64.RawURLEncoding.EncodeToString(noise)
	const chunk = 40
	for from := 0; from < n; from += chunk {
		var records []kafkatest.Record
		for i := from; i < min(n, from+chunk); i++ {
			head := fmt.Sprintf(`{"id":"m%d","picture":"`, i)
			pad := text[i%size:][:size-len(head)-2]
			records = append(records, kafkatest.Record{Partition: int32(i % 4), Value: []byte(head + pad + `"}`)})
		}
		e.kafka.Produce(e.t, e.topic, records...)
	}
}
