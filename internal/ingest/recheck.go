package ingest

import (
	"context"
	"fmt"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

// recheckInterval is how long a database that went back can go unnoticed where no records come.
const recheckInterval = 10 * time.Second

// groupEvery is how many rechecks lie between two looks at who else uses the group.
const groupEvery = 6

// recheckLoop compares the rows of partitions with what this process believes, and looks whether it has the group for
// itself. A transaction finds out by itself that its row is not where it should be; but a partition to which nothing
// is written has no transactions:
//
//	we store p up to 200 and the last record is 199; the database is replaced by a copy in which p stands at 100
//	nothing comes → nothing is stored → 100–199 are missing, and nobody notices
func (g *Ingester) recheckLoop(ctx context.Context) {
	for n := 0; ; n++ {
		if n%groupEvery == 0 {
			g.lookAtGroup(ctx)
		}
		timer := time.NewTimer(recheckInterval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-g.recheck:
			timer.Stop()
		}
		g.lookAtRows(ctx)
	}
}

// belief is where a partition's row should stand.
type belief struct {
	p     *partition
	epoch int
	row   int64
}

// beliefs leaves out partitions with a running transaction: its outcome is either.
func (g *Ingester) beliefs() (tps []message.TopicPartition, all map[message.TopicPartition]belief) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all = map[message.TopicPartition]belief{}
	for tp, p := range g.parts {
		if p.phase == running && p.saving == nil {
			tps = append(tps, tp)
			all[tp] = belief{p, p.epoch, p.row}
		}
	}
	return tps, all
}

// lookAtRows starts partitions anew whose row is not where it should be.
func (g *Ingester) lookAtRows(ctx context.Context) {
	tps, all := g.beliefs()
	if len(tps) == 0 {
		return
	}
	limited, cancel := context.WithTimeoutCause(ctx, resolveLimit, errResolveLimit)
	defer cancel()
	rows, err := g.cfg.Saver.Positions(limited, g.cfg.Group, tps)
	if err != nil {
		return // the writers and the watch of the database tell
	}
	found := make(map[message.TopicPartition]message.StoredPosition, len(rows))
	for _, r := range rows {
		found[r.TopicPartition] = r
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for tp, b := range all {
		r, ok := found[tp]
		p := b.p
		// A transaction that ran since the question moved both; the next look sees it.
		if p.gone || p.epoch != b.epoch || p.saving != nil || p.row != b.row || (ok && r.NextOffset == p.row && r.TopicID == p.topicID) {
			continue
		}
		p.moved = true
		g.restart(p)
	}
}

// lookAtGroup tells when partitions of the group are read into another database. Those that are ours carry our mark soon
// after they start; a mark that stays is of a process that runs.
func (g *Ingester) lookAtGroup(ctx context.Context) {
	limited, cancel := context.WithTimeoutCause(ctx, resolveLimit, errResolveLimit)
	defer cancel()
	all, err := g.src.GroupOffsets(limited, g.wants())
	if err != nil {
		return // the watch of the topics tells
	}
	shared := ""
	for _, c := range all {
		mark, ok := message.ParseCommitMark(c.Metadata)
		if ok && mark.Installation != g.cfg.Installation && !g.owns(c.TopicPartition) {
			shared = mark.Installation
		}
	}
	if shared == "" {
		g.health.clear(PartKafka, faultShared)
		return
	}
	g.health.fault(PartKafka, faultShared, fmt.Sprintf("group %s is used by another installation of Ferry as well (%s), which takes "+
		"a part of the records into its own database; give each a FERRY_KAFKA_GROUP of its own", g.cfg.Group, shared))
}

func (g *Ingester) owns(tp message.TopicPartition) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.parts[tp]
	return ok
}
