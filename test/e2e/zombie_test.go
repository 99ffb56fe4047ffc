package e2e

import (
	"testing"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

// An ingester is frozen until the group has given its partitions to another one, and then runs on where it was, with
// records of them in its hands. It stores nothing behind the other's back, and works on as a member of the group.
func TestZombie(t *testing.T) {
	t.Parallel()
	t.Run("inside a transaction", func(t *testing.T) {
		t.Parallel()
		kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
			z := newZombie(t, c)
			release := z.e.lock(`LOCK TABLE ferry.messages IN SHARE MODE`)
			z.produce(400) // some in its transaction, which holds the rows of the positions, the others waiting
			z.e.blocked()
			z.zombie.Freeze()
			release()
			z.buried()
		})
	})
	t.Run("between two", func(t *testing.T) {
		t.Parallel()
		kafkatest.Both(t, func(t *testing.T, c *kafkatest.Cluster) {
			z := newZombie(t, c)
			z.zombie.Freeze()
			z.produce(400) // the answer to its last fetch waits for it
			z.buried()
		})
	})
}

// zombie is a group of one that is about to be frozen.
type zombie struct {
	e       *env
	setting []string
	zombie  *proctest.Proc
	n       int
}

func newZombie(t *testing.T, c *kafkatest.Cluster) *zombie {
	t.Helper()
	e := newEnv(t, c, 2)
	// The transaction of a process that is frozen is ended by Postgres, here after 3 s.
	z := &zombie{e: e, setting: []string{through(e.db + "&idle_in_transaction_session_timeout=3000"), kafkaConfig(quick)}}
	z.zombie = e.ingester(z.setting...)
	z.produce(100)
	e.stored(100)
	return z
}

func (z *zombie) produce(n int) {
	z.e.t.Helper()
	z.e.produce(z.n, n, 2)
	z.n += n
}

// buried has another member take over, and then the zombie come back.
func (z *zombie) buried() {
	t, e := z.e.t, z.e
	t.Helper()
	heir := e.ingester(z.setting...)
	heir.WaitLog("partitions assigned", patience)
	z.produce(100)
	e.stored(z.n)
	z.zombie.Thaw()
	z.produce(100)
	z.zombie.WaitLog("partitions lost", patience)
	e.stored(z.n)
	if code, _ := heir.Term(patience); code != 0 {
		t.Errorf("the heir ended with %d", code)
	}
	z.produce(100)
	e.stored(z.n)
	if d := e.duplicateReads(); d != "0" {
		t.Errorf("%s records were stored behind the other's back", d)
	}
	if !z.zombie.Running() {
		t.Error("the zombie ended")
	}
}
