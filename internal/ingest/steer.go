package ingest

import (
	"context"
	"log/slog"

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
	c := g.changes()
	if len(c.start) > 0 {
		g.begin(c.start)
	}
	for _, reason := range pauseReasons {
		if tps := c.pause[reason]; len(tps) > 0 {
			g.log.Log(context.Background(), reason.level(), "partitions paused", "partitions", names(tps), "reason", reason.String())
			if err := g.src.Pause(tps); err != nil {
				g.log.Warn("pausing partitions", "error", err)
			}
		}
		if tps := c.resume[reason]; len(tps) > 0 {
			g.log.Log(context.Background(), reason.level(), "partitions resumed", "partitions", names(tps), "reason", reason.ended())
			if err := g.src.Resume(tps); err != nil {
				g.log.Warn("resuming partitions", "error", err)
			}
		}
	}
	g.busy = c.busy
	return c.busy
}

// pauseReason is why a partition is paused.
type pauseReason int

const (
	flowing    pauseReason = iota // it is not
	bufferFull                    // back-pressure, many times a minute under load
	stalled                       // the database takes nothing
)

var pauseReasons = []pauseReason{bufferFull, stalled}

func (r pauseReason) String() string {
	if r == stalled {
		return "the database takes nothing"
	}
	return "the buffer is full"
}

func (r pauseReason) ended() string {
	if r == stalled {
		return "the database takes records again"
	}
	return "the buffer is half empty"
}

func (r pauseReason) level() slog.Level {
	if r == stalled {
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// changes are what the source is to be told.
type changes struct {
	start         []found
	pause, resume map[pauseReason][]message.TopicPartition // resume: by what ended
	busy          bool
}

// changes finds out what the source is to be told. After a rebalance it is told of all pauses again.
func (g *Ingester) changes() changes {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := changes{pause: map[pauseReason][]message.TopicPartition{}, resume: map[pauseReason][]message.TopicPartition{}}
	for tp, p := range g.parts {
		switch p.phase {
		case starting:
			c.busy = true
		case resolved:
			c.start, c.busy = append(c.start, found{p, p.epoch, p.row}), true
		case running:
			want := p.writer.pauses()
			if want != flowing && (p.paused == flowing || g.reapply) {
				c.pause[want] = append(c.pause[want], tp)
			} else if want == flowing && p.paused != flowing {
				c.resume[p.paused] = append(c.resume[p.paused], tp)
			}
			p.paused = want
			c.busy = c.busy || want != flowing
		}
	}
	g.reapply = false
	return c
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
			p.phase, p.next, p.paused, p.heard = running, f.start, flowing, false
		}
	}
}

// tellLag sets the lag of each partition that is read: the offsets between its position and its end. Positions move over
// what holds no record, so that it is 0 when everything is stored.
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
			lags = append(lags, lag{tp, max(0, end-p.row)})
		}
	}
	g.mu.Unlock()
	for _, l := range lags {
		g.cfg.Metrics.IngestLag(l.tp.Topic, l.tp.Partition, l.n)
	}
}
