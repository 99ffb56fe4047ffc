package ingest

import (
	"context"
	"errors"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

const (
	// commitInterval is the time between two commits. Positions are in the database; Kafka's offsets are for people and
	// for the first start, so that a commit for each small transaction would only be work for the broker.
	commitInterval = 100 * time.Millisecond
	commitRetry    = time.Second
	commitLimit    = 10 * time.Second
	commitsFailed  = 3 // this many times in a row, a commit that fails is worth a warning; rebalances make some fail
)

var errCommitLimit10 = errors.New("no answer to the commit within 10 s")

// commitLoop commits what was stored.
func (g *Ingester) commitLoop(ctx context.Context) {
	failed := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.commits:
		}
		wait := commitInterval
		limited, cancel := context.WithTimeoutCause(ctx, commitLimit, errCommitLimit10)
		err := g.commitAll(limited)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			failed = 0
			g.health.clear(PartKafka, faultGroup)
		} else {
			wait = commitRetry
			failed++
			kick(g.commits)
			if failed >= commitsFailed {
				g.log.Warn("offsets can't be committed; positions are in the database, so that nothing is stored twice", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// mark is the metadata of a commit.
func (g *Ingester) mark(id message.TopicID) string {
	return message.CommitMark{Topic: id, Installation: g.cfg.Installation}.String()
}

// commitAll commits what is owed of all partitions that are ours.
func (g *Ingester) commitAll(ctx context.Context) error {
	return g.commitUnder(ctx, func() []*partition {
		owed := make([]*partition, 0, len(g.parts))
		for _, p := range g.parts { // no partition that is gone is among them
			owed = append(owed, p)
		}
		return owed
	})
}

// commitOf commits what is owed of partitions that are just being given up.
func (g *Ingester) commitOf(ctx context.Context, parts []*partition) error {
	return g.commitUnder(ctx, func() []*partition { return parts })
}

// commitUnder commits what is owed of the partitions that pick returns. From the pick to the end of the request no
// other commit can be made:
//
//	the loop picks p at 80; p is revoked, committed at 100 and given up; its new owner commits 200;
//	the loop's request for 80 is sent only now
//
// With one token for both, the revocation waits for the loop's request, and the loop picks only what is ours after it.
// The token goes back when the request is over and not when we stop waiting for it: it can still arrive until then.
func (g *Ingester) commitUnder(ctx context.Context, pick func() []*partition) error {
	select {
	case g.committing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	over := func() { <-g.committing }

	var parts []*partition
	var offsets []message.Committed
	g.mu.Lock()
	for _, p := range pick() {
		if p.owed() {
			parts = append(parts, p)
			offsets = append(offsets, message.Committed{
				TopicPartition: p.TopicPartition, Offset: p.row, Metadata: g.mark(p.topicID),
			})
		}
	}
	g.mu.Unlock()
	if len(parts) == 0 {
		over()
		return nil
	}
	if err := g.src.Commit(ctx, offsets, over); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, p := range parts {
		p.committed = offsets[i].Offset
	}
	return nil
}
