package store

import (
	"context"
	"slices"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store/storedb"
)

// Found is a message that somebody asked for.
type Found struct {
	ID         int64
	Route, Key string
	Position   message.Position
	ReceivedAt time.Time
	Status     message.Status // empty: its row in deliveries is gone
	Reason     message.Reason
	SettledAt  time.Time
}

// Find returns the messages that a reference may mean: the one with the id, and those of all routes with the key, in the
// order of their routes. Route, unless empty, leaves out the others.
func (s *Store) Find(ctx context.Context, ref message.Ref, route string) ([]Found, error) {
	var rows []storedb.FindByIDRow
	if ref.ByKey {
		err := s.again(ctx, "looking for a key", func() error {
			byKey, err := s.q.FindByKey(ctx, planned{s.pool}, message.NormalizeKey(ref.Key))
			rows = rows[:0]
			for _, r := range byKey {
				rows = append(rows, storedb.FindByIDRow(r))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if ref.ID != 0 {
		var byID []storedb.FindByIDRow
		err := s.again(ctx, "looking for a message", func() (err error) {
			byID, err = s.q.FindByID(ctx, planned{s.pool}, ref.ID)
			return err
		})
		if err != nil {
			return nil, err
		}
		byID = slices.DeleteFunc(byID, func(r storedb.FindByIDRow) bool {
			return slices.ContainsFunc(rows, func(k storedb.FindByIDRow) bool { return k.ID == r.ID })
		})
		rows = append(rows, byID...)
	}
	var found []Found
	for _, r := range rows {
		if route != "" && r.Route != route {
			continue
		}
		found = append(found, Found{
			ID: r.ID, Route: r.Route, Key: r.MessageKey,
			Position: message.Position{
				TopicPartition: message.TopicPartition{Topic: r.Topic, Partition: r.Partition}, TopicID: r.TopicID.Bytes, Offset: r.Offset,
			},
			ReceivedAt: r.ReceivedAt.Time, Status: message.Status(r.Status), Reason: message.Reason(r.Reason.String),
			SettledAt: r.SettledAt.Time,
		})
	}
	return found, nil
}
