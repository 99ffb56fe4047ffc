package ingest

import (
	"context"

	"github.com/ferry-forward/ferry/internal/message"
)

// search decides where one partition starts. The row is the truth where it has one of the present topic; what the group
// committed counts only without a row, and where an operator set it back.
type search struct {
	g  *Ingester
	q  query
	id message.TopicID
	facts
	findings *findings

	start     int64                   // where reading starts, and where the row stands then
	change    *message.PositionChange // what has to be done to the row for that; nil: nothing
	committed int64                   // what Kafka has of our own commits; -1: nothing that counts
}

// owner is who made a commit.
type owner int

const (
	nobody  owner = iota // there is none, or one that counts in a topic that was deleted
	us                   // this installation
	other                // another installation of Ferry
	foreign              // an operator, or what read the topic before Ferry
)

func (s *search) commit() (int64, owner) {
	c, ok := s.facts.committed[s.q.tp]
	if !ok {
		return -1, nobody
	}
	mark, ferry := message.ParseCommitMark(c.Metadata)
	switch {
	case !ferry:
		return c.Offset, foreign
	case mark.Topic != s.id:
		return -1, nobody
	case mark.Installation != s.g.cfg.Installation:
		s.findings.add(sharedGroup, s.q.tp, mark.Installation)
		return c.Offset, other
	}
	return c.Offset, us
}

func (s *search) run(ctx context.Context) error {
	committed, by := s.commit()
	s.committed = -1
	if by == us {
		s.committed = committed
	}
	row, ok := s.rows[s.q.tp]
	if !ok {
		return s.withoutRow(ctx, committed, by)
	}
	var none message.TopicID
	switch {
	case row.TopicID != s.id && row.TopicID != none:
		return s.recreated(ctx, row)
	case by == foreign && committed < row.NextOffset:
		s.findings.add(setBack, s.q.tp, move(row.NextOffset, committed))
		s.start, s.q.check = committed, true
	default:
		s.start = row.NextOffset
		s.tellMove(row.NextOffset, committed, by)
	}
	if s.start != row.NextOffset || s.id != row.TopicID { // no id: stored through a broker that had none
		s.move(&row, s.start)
	}
	return s.inBounds(ctx, &row)
}

// tellMove says where a row went that was not where this process had left it, or where a group stands that is not where
// its row is.
func (s *search) tellMove(row, committed int64, by owner) {
	switch {
	case s.q.moved && row < s.q.left:
		s.findings.add(rewound, s.q.tp, move(s.q.left, row))
	case s.q.moved && row > s.q.left:
		s.findings.add(movedOn, s.q.tp, move(s.q.left, row))
	case !s.q.known && by == us && committed > row:
		// Commits come after their rows. Told at the first start only: the lower offset may not be committed yet.
		s.findings.add(rewound, s.q.tp, move(committed, row))
	case !s.q.known && by == foreign && committed > row:
		s.findings.add(setForward, s.q.tp, move(row, committed))
	}
}

// recreated: the row counts in a topic that was deleted. What of the new one is gone already was never read.
func (s *search) recreated(ctx context.Context, row message.StoredPosition) error {
	first, _, err := s.bounds(ctx)
	if err != nil {
		return err
	}
	s.findings.add(recreated, s.q.tp, row.TopicID.String()+" → "+s.id.String())
	s.move(&row, first)
	s.expired(0, first)
	return nil
}

// withoutRow: the partition is read for the first time, or the database went back to before it was.
func (s *search) withoutRow(ctx context.Context, committed int64, by owner) error {
	if s.q.moved || by == us {
		// What it had of the partition is lost with the row, and nobody knows how much that was.
		s.findings.add(rowLost, s.q.tp, "")
		by = nobody
	}
	if by != nobody {
		s.start, s.q.check = committed, true // whoever committed it, the records may be gone
		s.move(nil, s.start)
		return s.inBounds(ctx, nil)
	}
	first, _, err := s.bounds(ctx)
	if err == nil {
		s.move(nil, first)
	}
	return err
}

// inBounds checks a start that may not be in Kafka any more.
func (s *search) inBounds(ctx context.Context, row *message.StoredPosition) error {
	if !s.q.check {
		return nil
	}
	first, end, err := s.bounds(ctx)
	if err != nil {
		return err
	}
	switch from := s.start; {
	case from < first:
		s.move(row, first)
		if row == nil || from == row.NextOffset { // what an operator set back to was read before
			s.expired(from, first)
		}
	case from > end:
		// The partition was cut off, or the offset was never in it. What was written since may lie anywhere below.
		s.findings.add(cutOff, s.q.tp, move(from, first))
		s.move(row, first)
	}
	return nil
}

// move has reading start at offset, and the row follow: from where it was found, or it is made.
func (s *search) move(row *message.StoredPosition, offset int64) {
	s.start = offset
	s.change = &message.PositionChange{
		StoredPosition: message.StoredPosition{TopicPartition: s.q.tp, TopicID: s.id, NextOffset: offset}, Was: row,
	}
}

// expired counts offsets that Kafka removed before they were read.
func (s *search) expired(from, first int64) {
	if first > from {
		s.change.Expired = first - from
		s.findings.add(expired, s.q.tp, move(from, first))
	}
}

func (s *search) bounds(ctx context.Context) (first, end int64, err error) {
	err = s.g.within(ctx, PartKafka, func(ctx context.Context) error {
		first, end, err = s.g.src.Bounds(ctx, s.q.tp)
		return err
	})
	return first, end, err
}
