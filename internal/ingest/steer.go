package ingest

import (
	"github.com/ferry-forward/ferry/internal/message"
)

// steer tells the source what was decided elsewhere: starts, pauses, resumes. It belongs to the polling goroutine, and
// says whether something is going on that it should look at again soon.
//
// A partition is paused while its writer has too much to do or waits for the database. What librdkafka read ahead of a
// partition that is paused is thrown away and read again, so pausing at the bound and resuming just below it would read
// everything many times: the writer resumes at half (writer.push, writer.release).
func (g *Ingester) steer() (busy bool) {
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
	return busy
}

// changes finds out what the source is to be told. After a rebalance it is told of all pauses again.
func (g *Ingester) changes() (start []*partition, pause, resume []message.TopicPartition, busy bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for tp, p := range g.parts {
		switch p.phase {
		case starting:
			busy = true
		case resolved:
			start, busy = append(start, p), true
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

// begin has the source read partitions from where they start. No other goroutine can take a resolved partition out of
// that phase but by restarting it; then the start that was found out is void, and so is what the source reads.
func (g *Ingester) begin(parts []*partition) {
	from := make(map[message.TopicPartition]int64, len(parts))
	g.mu.Lock()
	for _, p := range parts {
		from[p.TopicPartition] = p.start
	}
	g.mu.Unlock()
	err := g.src.Start(from)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range parts {
		switch {
		case p.phase != resolved:
		case err != nil:
			g.restart(p)
		default:
			p.phase, p.next, p.caught, p.paused = running, p.start, 0, false
		}
	}
	if err != nil {
		g.log.Warn("starting partitions", "error", err)
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
	if p.next == p.row {
		at = max(at, p.caught)
	}
	return max(0, end-at)
}
