package store

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store/storedb"
)

// Installation returns the id of the database, which it keeps through backup and restore.
func (s *Store) Installation(ctx context.Context) (string, error) {
	var id string
	err := s.again(ctx, "reading the id of the installation", func() (err error) {
		id, err = s.q.Installation(ctx, s.pool)
		return err
	})
	return id, err
}

// Positions returns where the group stands in those of the partitions that have a row.
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
	return found, nil
}

// ChangePositions makes rows, and moves rows from where they were found: all of them, or none and a
// *message.PositionsMovedError that names those that are not there any more.
func (s *Store) ChangePositions(ctx context.Context, group string, changes []message.PositionChange) error {
	changes = slices.Clone(changes)
	slices.SortFunc(changes, func(a, b message.PositionChange) int { return compareTP(a.TopicPartition, b.TopicPartition) })
	return s.inTx(ctx, "setting positions", func(tx pgx.Tx) error {
		var moved []message.TopicPartition
		for _, c := range changes {
			n, err := s.changePosition(ctx, tx, group, c)
			if err != nil {
				return err
			}
			if n == 0 {
				moved = append(moved, c.TopicPartition)
			}
		}
		if len(moved) > 0 {
			return &message.PositionsMovedError{Partitions: moved}
		}
		return nil
	})
}

func (s *Store) changePosition(ctx context.Context, tx pgx.Tx, group string, c message.PositionChange) (int64, error) {
	if c.Was == nil {
		return s.q.PositionMake(ctx, tx, storedb.PositionMakeParams{
			ConsumerGroup: group, Topic: c.Topic, Partition: c.Partition, TopicID: uuid(c.TopicID), NextOffset: c.NextOffset,
			Expired: c.Expired,
		})
	}
	return s.q.PositionMove(ctx, tx, storedb.PositionMoveParams{
		ConsumerGroup: group, Topic: c.Topic, Partition: c.Partition, TopicID: uuid(c.TopicID), NextOffset: c.NextOffset,
		Expired: c.Expired, WasTopicID: uuid(c.Was.TopicID), WasOffset: c.Was.NextOffset,
	})
}

// advance moves the positions of a batch. It is the first statement of the ingest transaction and the fence against
// another process, and against a database that went back in time:
//
//	A reads partition 0 from 100; A freezes, the group gives the partition to B
//	B stores 100–199, the row moves to 200
//	A wakes up and stores 100–149: its row is not at 100 → nothing is stored
//
// The rows stay locked until the commit, so that A waits for B's transaction if it runs, and then sees what it did. A
// row that is missing is no exception: a partition has its row before it is read (ChangePositions), so that the
// database lost it, and the messages before From with it.
func (s *Store) advance(ctx context.Context, tx pgx.Tx, b *message.Batch) error {
	if len(b.Advances) == 0 {
		return nil
	}
	p := storedb.PositionsAdvanceParams{ConsumerGroup: b.Group}
	advances := sorted(b.Advances)
	for _, a := range advances {
		p.Topics = append(p.Topics, a.Topic)
		p.Partitions = append(p.Partitions, a.Partition)
		p.TopicIds = append(p.TopicIds, uuid(a.TopicID))
		p.FromOffsets = append(p.FromOffsets, a.From)
		p.NextOffsets = append(p.NextOffsets, a.To)
	}
	rows, err := s.q.PositionsAdvance(ctx, tx, p)
	if err != nil || len(rows) == len(advances) {
		return err
	}
	there := make(map[message.TopicPartition]bool, len(rows))
	for _, r := range rows {
		there[message.TopicPartition{Topic: r.Topic, Partition: r.Partition}] = true
	}
	e := &message.PositionsMovedError{}
	for _, a := range advances {
		if !there[a.TopicPartition] {
			e.Partitions = append(e.Partitions, a.TopicPartition)
		}
	}
	return e
}

// sorted returns the advances in the order in which every transaction locks them.
func sorted(advances []message.Advance) []message.Advance {
	out := slices.Clone(advances)
	slices.SortFunc(out, func(a, b message.Advance) int { return compareTP(a.TopicPartition, b.TopicPartition) })
	return out
}
