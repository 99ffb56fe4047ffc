package e2e

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// Both tiers are killed at random moments while records flow: none is lost, and what comes twice was in flight.
func TestRandomKills(t *testing.T) {
	t.Parallel()
	t.Run("kfake", func(t *testing.T) {
		t.Parallel()
		randomKills(t, kafkatest.Fake(t), 20_000, 10)
	})
	t.Run("kafka", func(t *testing.T) {
		t.Parallel()
		randomKills(t, kafkatest.Real(t), 20_001, 3)
	})
}

// randomKills produces the records in as many equal shares as there are kills.
func randomKills(t *testing.T, c *kafkatest.Cluster, records, kills int) {
	const partitions, concurrency = 6, 50
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	e := newEnv(t, c, partitions)
	e.receiver.Always(receivertest.Status(200).After(5 * time.Millisecond))
	in, fw := e.ingester(), e.forwarder()
	allowed := 0
	for i := range kills {
		e.produce(i*records/kills, records/kills, partitions)
		// A moment told by progress, not by the clock: somewhere in this share of the records.
		target := strconv.Itoa(i*records/kills + random.IntN(records/kills))
		e.is(rescuePatience, "true", `SELECT (count(*) >= $1::bigint)::text FROM ferry.messages`, target)
		switch random.IntN(3) {
		case 0:
			in.Kill()
			in = e.ingester()
		case 1:
			fw.Kill()
			allowed += concurrency
			fw = e.forwarder()
		default:
			in.Kill()
			fw.Kill()
			allowed += concurrency
			in, fw = e.ingester(), e.forwarder()
		}
	}
	e.accounted(records)
	if d := e.duplicates(); d > allowed {
		t.Errorf("%d requests too many; at most %d were in flight when the forwarder died", d, allowed)
	}
	for _, p := range []*proctest.Proc{in, fw} {
		if code, _ := p.Term(30 * time.Second); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}
