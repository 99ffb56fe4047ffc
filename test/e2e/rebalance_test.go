package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

// Members of the group come and go under load, in order and by SIGKILL, also while the group is still busy with the change
// before. No record is lost or stored twice, and no committed offset goes back or is ahead of what is stored.
//
// On kfake, members of the classic protocols are killed only when the group is at rest: it gives no session timeout to a
// member that dies while its join waits for an answer, and never answers the joins of members whose session ends meanwhile.
func TestRebalances(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{
		"cooperative-sticky": quick,
		"range":              quick + ",partition.assignment.strategy=range",
		"consumer":           "group.protocol=consumer", // its timeouts are the broker's
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) { rebalances(t, c, config) })
		})
	}
}

func rebalances(t *testing.T, c *kafkatest.Cluster, config string) {
	const partitions = 12
	changes := 12
	if full {
		changes = 60
	}
	seed := uint64(time.Now().UnixNano())
	began, random := time.Now(), rand.New(rand.NewPCG(seed, 0))
	e := newEnv(t, c, partitions)
	watch := e.watchOffsets()
	stop := e.load(0, 2*partitions, partitions, 50*time.Millisecond)
	m := &members{e: e, random: random, setting: kafkaConfig(config), atRest: func() {}}
	if c.Fake != nil && strings.HasPrefix(config, quick) {
		m.atRest = func() { c.Settled(t, e.group, len(m.alive), partitions) }
	}
	m.add()
	for range changes {
		// A moment told by progress: some records after the last change.
		now, err := e.ask(messages)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := strconv.Atoi(now)
		e.is(rescuePatience, "true", `SELECT (count(*) >= $1::bigint)::text FROM ferry.messages`, strconv.Itoa(n+1+random.IntN(500)))
		m.change()
	}
	n := stop()
	e.stored(n)
	watch.onlyForward(t)
	if d := e.duplicateReads(); d != "0" {
		t.Errorf("%s records were stored again by a process that did not stand where the row stands", d)
	}
	m.end()
	t.Logf("seed %d: %d records, %v, in %v", seed, n, m.done, time.Since(began).Round(time.Second/10))
}

// members are the ingesters of one group.
type members struct {
	e       *env
	random  *rand.Rand
	setting string
	atRest  func() // waits until a member may be killed
	alive   []*proctest.Proc
	leaving []*proctest.Proc // after SIGTERM
	done    []string
}

func (m *members) add() {
	m.alive = append(m.alive, m.e.ingester(m.setting))
	m.done = append(m.done, fmt.Sprintf("+%d", len(m.alive)))
}

// change adds a member or takes one away; there are one to four. The last one's place is taken at once.
func (m *members) change() {
	if n := len(m.alive); n < 4 && m.random.IntN(2) == 0 {
		m.add()
		return
	}
	kill := m.random.IntN(2) == 0
	if kill {
		m.atRest()
	}
	i := m.random.IntN(len(m.alive))
	p := m.alive[i]
	m.alive = slices.Delete(m.alive, i, i+1)
	if kill {
		p.Kill()
		m.done = append(m.done, "kill")
	} else {
		admin(p) // until it has started, SIGTERM ends it like any program
		p.Signal(sigterm)
		m.leaving = append(m.leaving, p)
		m.done = append(m.done, "term")
	}
	if len(m.alive) == 0 {
		m.add()
	}
}

// end stops all of them in order.
func (m *members) end() {
	m.e.t.Helper()
	for _, p := range m.alive {
		admin(p)
		p.Signal(sigterm)
	}
	for _, p := range append(m.leaving, m.alive...) {
		if code := p.Wait(30 * time.Second); code != 0 {
			m.e.t.Errorf("an ingester ended with %d after SIGTERM", code)
		}
	}
}
