package e2e

import (
	"math/rand/v2"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

const sigterm = syscall.SIGTERM

// chaos is what happens while records flow.
type chaos struct {
	records int
	kills   int // of one of the processes or both; the records come in as many shares
	// broker goes down and comes back at every third kill, before or after it; nil: it stays.
	broker *kafkatest.Broker
}

// Both tiers are killed at random moments while records flow: none is lost, and what comes twice was in flight.
func TestRandomKills(t *testing.T) {
	t.Parallel()
	t.Run("kfake", func(t *testing.T) {
		t.Parallel()
		randomKills(t, kafkatest.Fake(t), chaos{records: 20_010, kills: 30})
	})
	t.Run("kafka", func(t *testing.T) {
		t.Parallel()
		c, broker := ownBroker(t)
		randomKills(t, c, chaos{records: 20_000, kills: 10, broker: broker})
	})
}

// ownBroker starts a real Kafka for one test.
func ownBroker(t *testing.T) (*kafkatest.Cluster, *kafkatest.Broker) {
	t.Helper()
	broker, err := kafkatest.NewBroker(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Stop)
	return kafkatest.At(t, broker.Addr), broker
}

// restarted is how an ingester that is killed again and again joins. On kfake it keeps its name, since kfake never misses a
// member that dies while it joins; this also spares the wait for its session's end.
func restarted(c *kafkatest.Cluster) string {
	if c.Fake != nil {
		return kafkaConfig(quick + ",group.instance.id=one")
	}
	return kafkaConfig(quick)
}

func randomKills(t *testing.T, c *kafkatest.Cluster, plan chaos) {
	const partitions, concurrency = 6, 50
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	began, random := time.Now(), rand.New(rand.NewPCG(seed, 0))
	e := newEnv(t, c, partitions)
	e.receiver.Always(receivertest.Status(200).After(5 * time.Millisecond))
	in, fw := e.ingester(restarted(c)), e.forwarder()
	share, allowed := plan.records/plan.kills, 0
	for i := range plan.kills {
		e.produce(i*share, share, partitions)
		// A moment told by progress, not by the clock: somewhere in this share of the records.
		target := strconv.Itoa(i*share + random.IntN(share))
		e.is(rescuePatience, "true", `SELECT (count(*) >= $1::bigint)::text FROM ferry.messages`, target)
		restart := outage(t, plan.broker, i, random)
		switch random.IntN(3) {
		case 0:
			in.Kill()
			in = e.ingester(restarted(c))
		case 1:
			fw.Kill()
			allowed += concurrency
			fw = e.forwarder()
		default:
			in.Kill()
			fw.Kill()
			allowed += concurrency
			in, fw = e.ingester(restarted(c)), e.forwarder()
		}
		restart()
	}
	e.accounted(share * plan.kills)
	e.atEnds()
	if d := e.duplicates(); d > allowed {
		t.Errorf("%d requests too many; at most %d were in flight when the forwarder died", d, allowed)
	}
	if d := e.duplicateReads(); d != "0" {
		t.Errorf("%s records were stored again", d)
	}
	for _, p := range []*proctest.Proc{in, fw} {
		if code, _ := p.Term(30 * time.Second); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	t.Logf("%d records, %d kills, %d requests too many, %v", share*plan.kills, plan.kills, e.duplicates(), time.Since(began).Round(time.Second/10))
}

// outage takes the broker down at every third kill, in order or by SIGKILL, and returns how to bring it back: at once, or
// only after the processes were killed and started again without it.
func outage(t *testing.T, broker *kafkatest.Broker, i int, random *rand.Rand) (restart func()) {
	t.Helper()
	if broker == nil || i%3 != 1 {
		return func() {}
	}
	end := []func(){broker.Kill, broker.Stop}[random.IntN(2)]
	end()
	restart = func() {
		if err := broker.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if random.IntN(2) == 0 {
		restart()
		return func() {}
	}
	return restart
}

// The ingester alone is killed again and again: no offset is ever committed that is not stored.
func TestIngesterKills(t *testing.T) {
	t.Parallel()
	kills, share := 3, 100
	if full {
		kills = 50
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
		e := newEnv(t, c, 3)
		watch := e.watchOffsets()
		in := e.ingester(restarted(c))
		for i := range kills {
			e.produce(i*share, share, 3)
			target := strconv.Itoa(i*share + random.IntN(share))
			e.is(rescuePatience, "true", `SELECT (count(*) >= $1::bigint)::text FROM ferry.messages`, target)
			in.Kill()
			in = e.ingester(restarted(c))
		}
		e.stored(kills * share)
		watch.onlyForward(t)
	})
}
