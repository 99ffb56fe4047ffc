package store

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store/storedb"
)

type positionKey struct {
	group string
	message.TopicPartition
}

// Positions returns where the group stands in those of the partitions that have a row. A partition without one may be
// started by the next Save from wherever its Advance says.
func (s *Store) Positions(ctx context.Context, group string, tps []message.TopicPartition) ([]message.StoredPosition, error) {
	topics, partitions := make([]string, len(tps)), make([]int32, len(tps))
	for i, tp := range tps {
		topics[i], partitions[i] = tp.Topic, tp.Partition
	}
	var rows []storedb.PositionsGetRow
	if err := s.again(ctx, "reading positions", func() (err error) {
		rows, err = s.q.PositionsGet(ctx, s.pool, topics, partitions, group)
		return err
	}); err != nil {
		return nil, err
	}
	found := make([]message.StoredPosition, len(rows))
	for i, r := range rows {
		found[i] = message.StoredPosition{
			TopicPartition: message.TopicPartition{Topic: r.Topic, Partition: r.Partition},
			TopicID:        r.TopicID.Bytes, NextOffset: r.NextOffset,
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tp := range tps {
		delete(s.known, positionKey{group, tp})
	}
	for _, p := range found {
		s.known[positionKey{group, p.TopicPartition}] = struct{}{}
	}
	return found, nil
}

// ResetPosition sets where the group stands in a partition, whatever the row says: for a topic that was created anew,
// an operator's reset, the first reading of a partition. What runs against it and was started before fails its
// compare-and-set.
func (s *Store) ResetPosition(ctx context.Context, group string, p message.StoredPosition) error {
	err := s.inTx(ctx, "setting the position of "+p.TopicPartition.String(), func(tx pgx.Tx) error {
		return s.q.PositionReset(ctx, tx, storedb.PositionResetParams{
			ConsumerGroup: group, Topic: p.Topic, Partition: p.Partition, TopicID: uuid(p.TopicID), NextOffset: p.NextOffset,
		})
	})
	if err == nil {
		s.remember(group, p.TopicPartition)
	}
	return err
}

func (s *Store) remember(group string, tps ...message.TopicPartition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tp := range tps {
		s.known[positionKey{group, tp}] = struct{}{}
	}
}

func (s *Store) isKnown(group string, tp message.TopicPartition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.known[positionKey{group, tp}]
	return ok
}

// advance moves the positions of a batch. It is the first statement of the ingest transaction and the fence against
// another process, and against a database that went back in time:
//
//	A reads partition 0 from 100; A freezes, the group gives the partition to B
//	B stores 100–199, the row moves to 200
//	A wakes up and stores 100–149: its row is not at 100 → nothing is stored
//
// The rows stay locked until the commit, so that A waits for B's transaction if it runs, and then sees what it did.
//
// A row that is missing is made only if this process has never seen one: else the database lost it, and the messages
// before From with it.
func (s *Store) advance(ctx context.Context, tx pgx.Tx, b *message.Batch) error {
	if len(b.Advances) == 0 {
		return nil
	}
	missing, err := s.moveRows(ctx, tx, b)
	if err != nil || len(missing) == 0 {
		return err
	}
	var first []message.Advance
	var moved []message.TopicPartition
	for _, a := range missing {
		if s.isKnown(b.Group, a.TopicPartition) {
			moved = append(moved, a.TopicPartition)
		} else {
			first = append(first, a)
		}
	}
	if len(first) > 0 && len(moved) == 0 {
		if moved, err = s.insertRows(ctx, tx, b.Group, first); err != nil {
			return err
		}
	}
	if len(moved) > 0 {
		return &message.PositionsMovedError{Partitions: moved}
	}
	return nil
}

// moveRows returns the advances whose row is not where it should be.
func (s *Store) moveRows(ctx context.Context, tx pgx.Tx, b *message.Batch) ([]message.Advance, error) {
	p := storedb.PositionsAdvanceParams{ConsumerGroup: b.Group}
	for _, a := range sorted(b.Advances) {
		p.Topics = append(p.Topics, a.Topic)
		p.Partitions = append(p.Partitions, a.Partition)
		p.TopicIds = append(p.TopicIds, uuid(a.TopicID))
		p.FromOffsets = append(p.FromOffsets, a.From)
		p.NextOffsets = append(p.NextOffsets, a.To)
	}
	rows, err := s.q.PositionsAdvance(ctx, tx, p)
	if err != nil || len(rows) == len(b.Advances) {
		return nil, err
	}
	moved := make(map[message.TopicPartition]bool, len(rows))
	for _, r := range rows {
		moved[message.TopicPartition{Topic: r.Topic, Partition: r.Partition}] = true
	}
	var missing []message.Advance
	for _, a := range sorted(b.Advances) {
		if !moved[a.TopicPartition] {
			missing = append(missing, a)
		}
	}
	return missing, nil
}

// insertRows makes the rows of partitions that are read for the first time, and returns those that exist meanwhile.
func (s *Store) insertRows(ctx context.Context, tx pgx.Tx, group string, first []message.Advance) ([]message.TopicPartition, error) {
	p := storedb.PositionsInsertParams{ConsumerGroup: group}
	for _, a := range first {
		p.Topics = append(p.Topics, a.Topic)
		p.Partitions = append(p.Partitions, a.Partition)
		p.TopicIds = append(p.TopicIds, uuid(a.TopicID))
		p.NextOffsets = append(p.NextOffsets, a.To)
	}
	rows, err := s.q.PositionsInsert(ctx, tx, p)
	if err != nil {
		return nil, err
	}
	made := make(map[message.TopicPartition]bool, len(rows))
	for _, r := range rows {
		made[message.TopicPartition{Topic: r.Topic, Partition: r.Partition}] = true
	}
	var moved []message.TopicPartition
	for _, a := range first {
		if !made[a.TopicPartition] {
			moved = append(moved, a.TopicPartition)
		}
	}
	return moved, nil
}

// sorted returns the advances in the order in which every transaction locks them.
func sorted(advances []message.Advance) []message.Advance {
	out := slices.Clone(advances)
	slices.SortFunc(out, func(a, b message.Advance) int { return compareTP(a.TopicPartition, b.TopicPartition) })
	return out
}
