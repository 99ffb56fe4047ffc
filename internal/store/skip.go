package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store/storedb"
)

// SkipTo moves a partition's row forward to where reading is to go on, and counts the offsets that are left out. It
// returns the row as it was, nil when there is none, and whether it was moved: one that stands there already or behind
// it, or that counts in another topic of the name, is not. A row without a topic id was written through a broker that
// has none, and counts as one of this topic.
//
// The row is locked before it is looked at, since ingesters move it all the time:
//
//	an ingester stores 100–149 and has locked the row; we are to go to 140
//	we wait for its commit, find 150, and move nothing: those records are stored
//
//	we lock the row at 100 and move it to 140; an ingester wants to store 100–149 and waits for us
//	it finds the row elsewhere, stores nothing, and reads on from 140
func (s *Store) SkipTo(ctx context.Context, group string, to message.StoredPosition) (was *message.StoredPosition, moved bool, err error) {
	err = s.inTx(ctx, "moving the position of "+to.TopicPartition.String(), func(tx pgx.Tx) error {
		was, moved = nil, false
		rows, err := s.q.PositionLock(ctx, tx, group, to.Topic, to.Partition)
		if err != nil || len(rows) == 0 {
			return err
		}
		was = &message.StoredPosition{
			TopicPartition: to.TopicPartition, TopicID: rows[0].TopicID.Bytes, NextOffset: rows[0].NextOffset,
		}
		var none message.TopicID
		if was.NextOffset >= to.NextOffset || was.TopicID != to.TopicID && was.TopicID != none {
			return nil
		}
		moved = true
		return s.q.PositionSkip(ctx, tx, storedb.PositionSkipParams{
			ConsumerGroup: group, Topic: to.Topic, Partition: to.Partition, TopicID: uuid(to.TopicID), NextOffset: to.NextOffset,
			Skipped: to.NextOffset - was.NextOffset,
		})
	})
	if err != nil {
		return nil, false, err
	}
	return was, moved, nil
}
