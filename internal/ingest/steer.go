package ingest

import (
	"github.com/ferry-forward/ferry/internal/message"
)

// steer tells the source what was decided elsewhere: topics, starts, pauses, resumes. It belongs to the polling goroutine, and
// says whether something is going on that it should look at again soon.
//
// A partition is paused while its writer has too much to do or waits for the database. What librdkafka read ahead of a
// partition that is paused is thrown away and read again, so pausing at the bound and resuming just below it would read
// everything many times: the writer resumes at half (writer.push, writer.release).
//
// It is called for each record and looks at the partitions only when something has changed.
func (g *Ingester) steer() (busy bool) {
	if !g.attention.Swap(false) {
		return g.busy
	}
	if err := g.subscribe(); err != nil {
		g.log.Warn("topics are not read yet; tried again with the next list of topics", "error", err)
	}
	start, pause, resume, busy := g.changes()
	if len(start) > 0 {
		g.begin(start)
	}
	if len(pause) > 0 {
		if err := g.src.Pause(pause); err != nil {
			g.log.Warn("pausing partitions", "error", err)
		}
	}
	if len(resume) > 0 {
		if err := g.src.Resume(resume); err != nil {
			g.log.Warn("resuming partitions", "error", err)
		}
	}
	g.busy = busy
	return busy
}

// changes finds out what the source is to be told. After a rebalance it is told of all pauses again.
func (g *Ingester) changes() (start []found, pause, resume []message.TopicPartition, busy bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for tp, p := range g.parts {
		switch p.phase {
		case starting:
			busy = true
		case resolved:
			start, busy = append(start, found{p, p.epoch, p.start}), true
		case running:
			want := p.writer.full || p.writer.stalled
			if want && (!p.paused || g.reapply) {
				pause = append(pause, tp)
			} else if !want && p.paused {
				resume = append(resume, tp)
			}
			p.paused = want
			busy = busy || want
		}
	}
	g.reapply = false
	if len(pause)+len(resume) > 0 {
		g.log.Debug("pausing and resuming", "paused", names(pause), "resumed", names(resume))
	}
	return start, pause, resume, busy
}

// found is a partition that can start, as it was found out for one of its epochs.
type found struct {
	p     *partition
	epoch int
	start int64
}

// begin has the source read partitions from where they start. One that is restarted meanwhile stays as it is then: what
// the source reads of it is dropped until its new start is known.
func (g *Ingester) begin(starts []found) {
	from := make(map[message.TopicPartition]int64, len(starts))
	for _, f := range starts {
		from[f.p.TopicPartition] = f.start
	}
	err := g.src.Start(from)
	if err != nil {
		g.log.Warn("starting partitions", "error", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.attention.Store(true) // their writers may want them paused
	for _, f := range starts {
		p := f.p
		switch {
		case p.epoch != f.epoch:
		case err != nil:
			g.restart(p)
		default:
			p.phase, p.next, p.stored, p.caught, p.paused = running, f.start, f.start, 0, false
		}
	}
}

// tellLag sets the lag of each partition that is read.
func (g *Ingester) tellLag() {
	type lag struct {
		tp message.TopicPartition
		n  int64
	}
	var lags []lag
	g.mu.Lock()
	for tp, p := range g.parts {
		if p.phase != running {
			continue
		}
		if end, ok := g.src.End(tp); ok {
			lags = append(lags, lag{tp, p.lag(end)})
		}
	}
	g.mu.Unlock()
	for _, l := range lags {
		g.cfg.Metrics.IngestLag(l.tp.Topic, l.tp.Partition, l.n)
	}
}

// lag is how many offsets lie between what is stored and the partition's end. Behind the last record there may be
// markers of transactions, which never come as records: when all that came is stored, what was caught up with counts.
func (p *partition) lag(end int64) int64 {
	at := p.row
	if p.next == p.stored {
		at = max(at, p.caught)
	}
	return max(0, end-at)
}
