package ingest_test

import (
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/ingest"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
)

// TestTheBrokerIsAwayAndComesBack kills a broker of its own under a running ingester, then freezes it at the stop.
func TestTheBrokerIsAwayAndComesBack(t *testing.T) {
	t.Parallel()
	b, err := kafkatest.NewBroker(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	c := kafkatest.At(t, b.Addr)
	topic, group, m := kafkatest.Name("broker"), kafkatest.Name("group"), newMemory()
	c.CreateTopic(t, topic, 3, nil)
	n := produce(t, c, topic, 3, 50)
	p := run(t, c, m, setup{group: group, properties: map[string]string{"reconnect.backoff.max.ms": "1000"}}, plain(topic))
	wait(t, "the records", func() bool { return m.stored() == n })
	wait(t, "readiness", p.isReady)

	b.Kill()
	wait(t, "red readiness", func() bool { return p.why(ingest.PartKafka) != "" })
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	wait(t, "readiness", p.isReady)
	n += produce(t, c, topic, 3, 50)
	wait(t, "the records", func() bool { return m.stored() == n })
	wait(t, "the commit", func() bool { return committed(t, c, group, topic) })

	// A broker that is silent keeps neither a record from being stored nor the process from ending.
	if err := b.Freeze(); err != nil {
		t.Fatal(err)
	}
	if took := p.end(); took > 10*time.Second {
		t.Errorf("the stop took %s with a silent broker", took)
	}
	if err := b.Thaw(); err != nil {
		t.Fatal(err)
	}
	n += produce(t, c, topic, 3, 10)
	run(t, c, m, setup{group: group}, plain(topic))
	wait(t, "the rest", func() bool { return m.stored() == n })
	if d := m.count(message.IngestDuplicate); d > 0 {
		t.Errorf("%d records were read twice", d)
	}
}
