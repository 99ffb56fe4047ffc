package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/riverqueue/river"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store/storedb"
	"github.com/ferry-forward/ferry/riverjobs"
)

// deadLetter makes the dead letter jobs of messages that this transaction has made failed, as far as their routes have
// dead letters. Whatever makes messages failed calls it in its transaction: there is then no moment at which a message is
// failed and its dead letter can be forgotten.
func (s *Store) deadLetter(ctx context.Context, tx pgx.Tx, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	rows, err := s.q.DeadLetterFailures(ctx, tx, ids)
	if err != nil {
		return fmt.Errorf("reading failures: %w", err)
	}
	jobs := make([]river.InsertManyParams, len(rows))
	for i, r := range rows {
		jobs[i].Args = riverjobs.DeadLetterArgs{
			MessageID: r.MessageID, Route: r.Route, Key: r.MessageKey, Reason: r.Reason.String, Detail: r.Detail.String,
			Attempts: int(r.Attempts), HTTPStatus: int(r.HTTPStatus.Int32), ErrorCode: r.ErrorCode.String, Error: r.Error.String,
			FailedAt: r.SettledAt.Time.UTC(), Bytes: r.RecordBytes,
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	if _, err := s.jobs.InsertManyTx(ctx, tx, jobs); err != nil {
		return fmt.Errorf("inserting dead letter jobs: %w", err)
	}
	return nil
}

// DeadLetter is a failed message as its dead letter tells it.
type DeadLetter struct {
	MessageID int64
	Record    message.Record
	// Stripped says that the database refused the record's content, so that it was stored without.
	Stripped bool
	// FailedAt is when the message failed last, WrittenAt when Kafka had the dead letter of that failure; zero if it is not
	// failed any more, or has none yet.
	FailedAt, WrittenAt time.Time
}

// DeadLetters reads failed messages by their ids; one that is not in the result was purged.
func (s *Store) DeadLetters(ctx context.Context, ids []int64) (map[int64]*DeadLetter, error) {
	var rows []storedb.DeadLettersLoadRow
	if err := s.again(ctx, fmt.Sprintf("loading %d failed messages", len(ids)), func() (err error) {
		rows, err = s.q.DeadLettersLoad(ctx, planned{s.pool}, ids)
		return err
	}); err != nil {
		return nil, err
	}
	letters := make(map[int64]*DeadLetter, len(rows))
	for i := range rows {
		r := &rows[i]
		headers, err := decodeHeaders(r.Headers)
		if err != nil {
			return nil, fmt.Errorf("loading message %d: %w", r.ID, err)
		}
		l := &DeadLetter{
			MessageID: r.ID, Stripped: r.Stripped,
			Record: message.Record{
				Position: message.Position{
					TopicPartition: message.TopicPartition{Topic: r.Topic, Partition: r.Partition}, TopicID: r.TopicID.Bytes, Offset: r.Offset,
				},
				Key: r.KafkaKey, Value: r.Payload, Headers: headers, Timestamp: r.ProducedAt.Time,
			},
		}
		if r.Status == message.StatusFailed.String() {
			l.FailedAt, l.WrittenAt = r.SettledAt.Time, r.DeadLetteredAt.Time
		}
		letters[r.ID] = l
	}
	return letters, nil
}

// Written is a dead letter that Kafka has.
type Written struct {
	MessageID int64
	FailedAt  time.Time // of the failure that it tells of
}

// DeadLettered notes that Kafka has these dead letters. A message that is not failed any more, or failed again since, is
// left as it is.
func (s *Store) DeadLettered(ctx context.Context, written []Written) error {
	ids, ats := make([]int64, len(written)), make([]pgtype.Timestamptz, len(written))
	for i, w := range written {
		ids[i], ats[i] = w.MessageID, pgtype.Timestamptz{Time: w.FailedAt, Valid: true}
	}
	return s.inTx(ctx, fmt.Sprintf("noting %d dead letters", len(written)), func(tx pgx.Tx) error {
		return s.q.DeadLettersWritten(ctx, tx, ids, ats)
	})
}
