package ingest

import (
	"strings"

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
	phase phase
	// epoch counts restarts, so that a record that was read before one is told from those after it.
	epoch int
	check bool // its position may not be in Kafka: compare it with the partition's bounds
	moved bool // Save found its row elsewhere

	topicID message.TopicID
	start   int64 // resolved: where to start
	row     int64 // where the position's row stands, or will with the first batch; the next batch moves it from here
	next    int64 // the next offset to come
	stored  int64 // all records before it are stored: where reading started, then as row
	caught  int64 // the end that was reached, markers of transactions included
	paused  bool  // as the source was told

	saving chan struct{} // not nil while a transaction with its records runs; closed when it ends

	commit    int64 // the offset to commit: all before it is stored; -1: none yet
	committed int64 // the offset that Kafka has, as far as we know; -1: unknown
}

func newPartition(tp message.TopicPartition, w *writer) *partition {
	return &partition{TopicPartition: tp, writer: w, commit: -1, committed: -1}
}

// owed says whether there is an offset to commit.
func (p *partition) owed() bool { return p.commit >= 0 && p.commit != p.committed }

// Ferry's commits carry metadata, so that an operator's reset, which carries none, is told from them. The topic's id
// is in it because committed offsets can outlive the topic they count in.
const metadataPrefix = "ferry topic="

func metadata(id message.TopicID) string { return metadataPrefix + id.String() }

// isOurs says whether Ferry made a commit with this metadata, and for which topic.
func isOurs(metadata string) (message.TopicID, bool) {
	text, ok := strings.CutPrefix(metadata, metadataPrefix)
	if !ok {
		return message.TopicID{}, false
	}
	id, err := message.ParseTopicID(text[:min(36, len(text))])
	return id, err == nil
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
	p.phase = starting
	p.writer.forget(p)
	g.attention.Store(true)
	kick(g.resolve)
}
