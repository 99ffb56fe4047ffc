package store

import (
	"context"
	"fmt"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store/storedb"
)

// Loaded is what Load found.
type Loaded struct {
	// Now is the database's clock, by which all forwarders measure.
	Now time.Time
	// Items holds the messages by id; an id that is not in it was purged.
	Items map[int64]*Item
}

// Item is a message with the state of its delivery.
type Item struct {
	message.Message
	message.Delivery
}

// Load reads messages with the state of their delivery, in one statement.
func (s *Store) Load(ctx context.Context, ids []int64) (*Loaded, error) {
	op := fmt.Sprintf("loading %d messages", len(ids))
	var rows []storedb.MessagesLoadRow
	if err := s.again(ctx, op, func() (err error) {
		rows, err = s.q.MessagesLoad(ctx, planned{s.pool}, ids)
		return err
	}); err != nil {
		return nil, err
	}
	l := &Loaded{Items: make(map[int64]*Item, len(rows))}
	for i := range rows {
		it, err := item(&rows[i])
		if err != nil {
			return nil, fmt.Errorf("loading message %d: %w", rows[i].ID, err)
		}
		l.Items[it.ID] = it
		l.Now = rows[i].Now.Time
	}
	if len(rows) == 0 {
		var err error
		if l.Now, err = s.Now(ctx); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func item(r *storedb.MessagesLoadRow) (*Item, error) {
	headers, err := decodeHeaders(r.Headers)
	if err != nil {
		return nil, err
	}
	return &Item{
		message.Message{
			ID: r.ID, Route: r.Route, Key: r.MessageKey, ReceivedAt: r.ReceivedAt.Time, KeyRevision: int(r.KeyRevision),
			Record: message.Record{
				Position: message.Position{
					TopicPartition: message.TopicPartition{Topic: r.Topic, Partition: r.Partition},
					TopicID:        r.TopicID.Bytes, Offset: r.Offset,
				},
				Key: r.KafkaKey, Value: r.Payload, Headers: headers, Timestamp: r.ProducedAt.Time,
			},
		},
		message.Delivery{
			JobID: r.JobID.Int64, Status: message.Status(r.Status), Reason: message.Reason(r.Reason.String),
			Detail: r.Detail.String, Attempts: int(r.Attempts), Requests: int(r.Requests), DueFrom: r.DueFrom.Time,
			NextAttemptAt: r.NextAttemptAt.Time,
		},
	}, nil
}
