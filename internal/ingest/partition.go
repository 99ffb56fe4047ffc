package ingest

import (
	"github.com/ferry-forward/ferry/internal/message"
)

// phase is how far a partition of ours is.
type phase int

const (
	starting phase = iota // where to read from is being found out; records that come are not its own yet
	resolved              // known; the polling goroutine is to start it
	running               // records come
)

// partition is one assignment of a partition: the same partition assigned again is another one. Its fields are under
// Ingester.mu.
type partition struct {
	message.TopicPartition
	writer *writer

	gone  bool // not ours any more
	known bool // its start was found out before
	phase phase
	// epoch counts restarts, so that a record that was read before one is told from those after it.
	epoch int
	check bool // its position may not be in Kafka: compare it with the partition's bounds
	moved bool // Save found its row elsewhere

	topicID message.TopicID
	// row is where the position's row stands: all before it is stored, and the next batch moves it from here.
	row int64
	// next is the next offset to come.
	next   int64
	paused pauseReason // as the source was told

	saving chan struct{} // not nil while a transaction with its records runs; closed when it ends

	// heard: something came of it since it was started last. Before that, nothing is committed for it: librdkafka
	// begins to read no partition while a commit is under way, and the coordinator may be silent.
	heard     bool
	committed int64 // the offset that Kafka has, as far as we know; -1: unknown
}

func newPartition(tp message.TopicPartition, w *writer) *partition {
	return &partition{TopicPartition: tp, writer: w, committed: -1}
}

// owed says whether there is an offset to commit. It is always that of the row: a committed offset means that
// everything before it is stored.
func (p *partition) owed() bool { return p.heard && p.row != p.committed }

// hear notes that something came of the partition, so that its row can be committed: what Kafka has may be behind it
// (killed between save and commit), or ahead (the database went back). Called under mu.
func (g *Ingester) hear(p *partition) {
	if !p.heard {
		p.heard = true
		if p.owed() {
			kick(g.commits)
		}
	}
}

// writerFor returns the partition's writer: the one it had before, else the one with the fewest partitions. A
// transaction of an earlier assignment may still run; on the same writer, the next one comes after it.
func (g *Ingester) writerFor(tp message.TopicPartition) *writer {
	if w, ok := g.writerOf[tp]; ok {
		return w
	}
	load := map[*writer]int{}
	for p := range g.parts {
		load[g.writerOf[p]]++
	}
	least := g.writers[0]
	for _, w := range g.writers {
		if load[w] < load[least] {
			least = w
		}
	}
	g.writerOf[tp] = least
	return least
}

// restart drops what is buffered of a partition and has its start found out anew. Called under mu.
func (g *Ingester) restart(p *partition) {
	p.epoch++
	p.phase, p.heard = starting, false
	p.writer.forget(p)
	g.attention.Store(true)
	kick(g.resolve)
}
