package ingester_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

// protocols are the two ways to be a member of a group.
var protocols = map[string]string{"classic": "", "consumer": ",group.protocol=consumer"}

// stored says how many records of a topic a process is to have stored.
func stored(topic string, n int) string {
	return fmt.Sprintf(`ferry_ingest_records_total{result="stored",topic="%s"} %d`, topic, n)
}

// TestFencedInstanceEnds: of two processes with one group.instance.id one ends and says why, the other goes on. By the
// classic protocol the later one takes the place, by KIP-848 the earlier one keeps it.
func TestFencedInstanceEnds(t *testing.T) {
	t.Parallel()
	for name, more := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) { fenced(t, c, more) })
		})
	}
}

func fenced(t *testing.T, c *kafkatest.Cluster, more string) {
	topic := c.Topic(t, "fenced", 2)
	env := []string{
		"FERRY_DATABASE_URL=" + pgtest.New(t), "FERRY_KAFKA_BROKERS=" + c.Addr, "FERRY_KAFKA_GROUP=" + topic,
		"FERRY_KAFKA_CONFIG=group.instance.id=one" + more,
	}
	stays, url := run(t, topic, env...)
	wait(t, url+"/readyz", 200, `"ready":true`)
	stays.WaitLog(`"message":"partitions assigned"`, patience)
	ends, later := run(t, topic, env...)
	if more == "" {
		stays, ends, url = ends, stays, later
	}
	code := ends.Wait(patience)
	for _, want := range []string{"the same group.instance.id: ", "give each process its own"} {
		if code != 1 || !strings.Contains(ends.Log(), want) {
			t.Errorf("exit %d; the log is to have %q", code, want)
		}
	}
	if strings.Contains(ends.Log(), "not left in order") {
		t.Error("the one that ended waited for the group until its time was over")
	}
	wait(t, url+"/readyz", 200, `"ready":true`)
	c.Produce(t, topic, kafkatest.Value(`{"id":"1"}`))
	wait(t, url+"/metrics", 200, stored(topic, 1))
	stop(t, stays)
}

func TestAnAssignorThatBrokersDoNotHaveEnds(t *testing.T) {
	t.Parallel()
	c := kafkatest.Real(t)
	topic := c.Topic(t, "assignor", 1)
	p, _ := run(t, topic, "FERRY_DATABASE_URL="+pgtest.New(t), "FERRY_KAFKA_BROKERS="+c.Addr, "FERRY_KAFKA_GROUP="+topic,
		"FERRY_KAFKA_CONFIG=group.protocol=consumer,group.remote.assignor=nonsense")
	if code := p.Wait(patience); code != 1 || !strings.Contains(p.Log(), "do not have this group.remote.assignor") {
		t.Errorf("exit %d", code)
	}
}

// TestStaticMemberComesBack: a static member that is started again has its partitions as before; the others notice
// nothing.
func TestStaticMemberComesBack(t *testing.T) {
	t.Parallel()
	for name, more := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			comesBack(t, kafkatest.Real(t), more)
		})
	}
}

var rebalanced = regexp.MustCompile(`"message":"partitions (assigned|revoked|lost)`)

func comesBack(t *testing.T, c *kafkatest.Cluster, more string) {
	topic, db := c.Topic(t, "static", 4), pgtest.New(t)
	start := func(instance string) (*proctest.Proc, string) {
		return run(t, topic, "FERRY_DATABASE_URL="+db, "FERRY_KAFKA_BROKERS="+c.Addr, "FERRY_KAFKA_GROUP="+topic,
			"FERRY_KAFKA_CONFIG=group.instance.id="+instance+more)
	}
	ids := 0
	produce := func() { // one record for each partition
		for p := range int32(4) {
			ids++
			c.Produce(t, topic, kafkatest.Record{Partition: p, Value: fmt.Appendf(nil, `{"id":"%d"}`, ids)})
		}
	}
	one, _ := start("one")
	one.WaitLog(`"message":"partitions assigned"`, patience)
	two, twoURL := start("two")
	two.WaitLog(`"owned":2,"message":"partitions assigned"`, patience)
	produce()
	wait(t, twoURL+"/metrics", 200, stored(topic, 2))
	before := len(rebalanced.FindAllString(two.Log(), -1))

	stop(t, one)
	produce()
	wait(t, twoURL+"/metrics", 200, stored(topic, 4))
	one, oneURL := start("one")
	wait(t, oneURL+"/metrics", 200, stored(topic, 2)) // those written while it was away, and none again
	if more == "" {                                   // by KIP-848 the place of a process that was killed is taken until its session ends
		one.Kill()
		produce()
		wait(t, twoURL+"/metrics", 200, stored(topic, 6))
		one, oneURL = start("one")
		wait(t, oneURL+"/metrics", 200, stored(topic, 2))
	}
	produce()
	wait(t, oneURL+"/metrics", 200, stored(topic, 4))
	wait(t, twoURL+"/metrics", 200, stored(topic, ids/2))
	if after := len(rebalanced.FindAllString(two.Log(), -1)); after != before {
		t.Errorf("the other member had %d rebalances", after-before)
	}
	stop(t, one)
	stop(t, two)
}
