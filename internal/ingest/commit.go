package ingest

import (
	"context"
	"errors"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
)

const (
	commitLimit = 10 * time.Second
	commitRetry = time.Second
)

var errCommit = errors.New("no answer to a commit within 10 s")

// commitLoop commits what was stored, as often as the coordinator answers.
func (g *Ingester) commitLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.commits:
		}
		limited, cancel := context.WithTimeoutCause(ctx, commitLimit, errCommit)
		err := g.commitAll(limited)
		cancel()
		if err == nil || ctx.Err() != nil {
			continue
		}
		g.log.Warn("committing offsets, trying again", "error", err)
		t := time.NewTimer(commitRetry)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		kick(g.commits)
	}
}

// commitAll commits what is owed of all partitions.
func (g *Ingester) commitAll(ctx context.Context) error {
	return g.commitWith(ctx, func() []*partition {
		parts := make([]*partition, 0, len(g.parts))
		for _, p := range g.parts {
			parts = append(parts, p)
		}
		return parts
	})
}

// commitOf commits what is owed of partitions that are being given up.
func (g *Ingester) commitOf(ctx context.Context, parts []*partition) error {
	return g.commitWith(ctx, func() []*partition { return parts })
}

// commitWith commits what is owed of the chosen partitions. One commit is under way at a time, from the choice to the end
// of the request:
//
//	the loop chooses p's offset 80; p is revoked, its last offset 100 is committed, and B takes over and commits 200
//	the loop's request for 80 goes out → the committed offset falls back
//
// A request that timed out keeps the token until it is really over, so that no later one can be overtaken by it.
func (g *Ingester) commitWith(ctx context.Context, choose func() []*partition) error {
	select {
	case g.committing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	g.mu.Lock()
	var owed []*partition
	var offsets []message.Committed
	for _, p := range choose() {
		if p.owed() {
			owed = append(owed, p)
			offsets = append(offsets, message.Committed{TopicPartition: p.TopicPartition, Offset: p.commit, Metadata: metadata(p.topicID)})
		}
	}
	g.mu.Unlock()
	release := func() { <-g.committing }
	if len(offsets) == 0 {
		release()
		return nil
	}
	if err := g.src.Commit(ctx, offsets, release); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, p := range owed {
		p.committed = offsets[i].Offset
	}
	return nil
}
