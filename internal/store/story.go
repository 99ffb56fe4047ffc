package store

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store/storedb"
)

// Story is all that is known of a message, at one moment.
type Story struct {
	Now time.Time // the database's clock
	MessageStatus
	Message        message.Message
	Sum            []byte // SHA-256 of the record's value, also of one that is not stored; nil for a null one
	JobID          int64  // that owns it; 0: none
	Requests       int
	DueFrom        time.Time // zero: its row in deliveries is gone
	DeadLetteredAt time.Time // zero: Kafka has no dead letter of this failure
	Attempts       []Attempted
	Job            *Job // that owns it; nil: it is gone, or there is none
	// Conflicts are messages that have its key and another payload: those under <key>#<position>, or the one that has the
	// key if this is such a one. A few.
	Conflicts []Named
	// Forwarders is how many forwarders that work its route were alive within the last minute.
	Forwarders int
}

// Attempted is a row of attempts.
type Attempted struct {
	Attempt       int        `json:"attempt"`
	StartedAt     time.Time  `json:"started_at"`
	DurationMS    int        `json:"duration_ms"`
	Verdict       string     `json:"verdict"`
	Counted       bool       `json:"counted"`
	HTTPStatus    *int32     `json:"http_status"`
	ErrorCode     *string    `json:"error_code"`
	Error         *string    `json:"error"`
	Response      *string    `json:"response"`
	NextAttemptAt *time.Time `json:"next_attempt_at"`
	Forwarder     string     `json:"forwarder"`
}

// Job is a River job.
type Job struct {
	ID          int64      `json:"id"`
	Kind        string     `json:"kind"`
	State       string     `json:"state"`
	Queue       string     `json:"queue"`
	Attempt     int        `json:"attempt"`
	ScheduledAt *time.Time `json:"scheduled_at"`
	Messages    int        `json:"messages"`   // that it was made for
	LastError   *string    `json:"last_error"` // null: none
}

// Named names another message.
type Named struct {
	ID  int64  `json:"message_id"`
	Key string `json:"message_key"`
}

const (
	aliveWithin   = time.Minute // of a forwarder
	someConflicts = 20
	// beforeStored is more than a forwarder's clock can be behind the database's: no attempt is that much older than its message.
	beforeStored = 24 * time.Hour
)

// Story returns all that is known of a message; nil when there is none with the id.
func (s *Store) Story(ctx context.Context, id int64) (l *Story, err error) {
	err = s.again(ctx, "looking at a message", func() error {
		l = nil
		return s.once(ctx, snapshotSQL(s.cfg.PollOnly, statementTimeout), func(tx pgx.Tx) error {
			status, err := lookStatus(ctx, tx, id)
			if err != nil || status == nil {
				return err
			}
			l = &Story{MessageStatus: *status}
			return s.lookMore(ctx, tx, l)
		})
	})
	return l, err
}

func lookStatus(ctx context.Context, tx pgx.Tx, id int64) (*MessageStatus, error) {
	q := statusSQL(id)
	rows, err := tx.Query(ctx, q.String(), q.args...)
	if err != nil {
		return nil, err
	}
	status, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[MessageStatus])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // there is none
	}
	return &status, err
}

func (s *Store) lookMore(ctx context.Context, tx pgx.Tx, l *Story) error {
	m, err := s.q.LookMessage(ctx, tx, l.ID)
	if err != nil {
		return err
	}
	headers, err := decodeHeaders(m.Headers)
	if err != nil {
		return err
	}
	l.Now, l.Sum, l.JobID, l.Requests = m.Now.Time, m.PayloadSHA256, m.JobID, int(m.Requests)
	l.DueFrom, l.DeadLetteredAt = m.DueFrom.Time, m.DeadLetteredAt.Time
	l.Message = message.Message{
		ID: l.ID, Route: l.Route, Key: l.Key, KeyRevision: int(m.KeyRevision), ReceivedAt: l.ReceivedAt,
		Record: message.Record{
			Position: message.Position{
				TopicPartition: message.TopicPartition{Topic: l.Topic, Partition: l.Partition}, TopicID: m.TopicID.Bytes, Offset: l.Offset,
			},
			Key: m.KafkaKey, Value: m.Payload, Headers: headers,
		},
	}
	if l.ProducedAt != nil {
		l.Message.Timestamp = *l.ProducedAt
	}
	if l.Attempts, err = s.lookAttempts(ctx, tx, l); err != nil {
		return err
	}
	if l.Job, err = s.lookJob(ctx, tx, l.JobID); err != nil {
		return err
	}
	alive, err := s.q.ForwardersOf(ctx, tx, l.Route, aliveWithin.Seconds())
	if err != nil {
		return err
	}
	l.Forwarders = int(alive)
	l.Conflicts, err = s.lookConflicts(ctx, tx, l)
	return err
}

func (s *Store) lookAttempts(ctx context.Context, tx pgx.Tx, l *Story) ([]Attempted, error) {
	rows, err := s.q.LookAttempts(ctx, tx, l.ID, stamp(l.ReceivedAt.Add(-beforeStored)))
	if err != nil {
		return nil, err
	}
	attempts := make([]Attempted, len(rows))
	for i := range rows {
		r := &rows[i]
		attempts[i] = Attempted{
			Attempt: int(r.Attempt), StartedAt: r.StartedAt.Time, DurationMS: int(r.DurationMs), Verdict: r.Verdict, Counted: r.Counted,
			Forwarder:  r.Forwarder,
			HTTPStatus: ptr(r.HTTPStatus.Int32, r.HTTPStatus.Valid), ErrorCode: ptr(r.ErrorCode.String, r.ErrorCode.Valid),
			Error: ptr(r.Error.String, r.Error.Valid), Response: ptr(r.Response.String, r.Response.Valid),
			NextAttemptAt: ptr(r.NextAttemptAt.Time, r.NextAttemptAt.Valid),
		}
	}
	return attempts, nil
}

// ptr points to v, or is nil.
func ptr[T any](v T, valid bool) *T {
	if !valid {
		return nil
	}
	return &v
}

func (s *Store) lookJob(ctx context.Context, tx pgx.Tx, id int64) (*Job, error) {
	if id == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	j, err := s.q.LookJob(ctx, tx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // it is gone
	}
	if err != nil {
		return nil, err
	}
	return &Job{
		ID: j.ID, Kind: j.Kind, State: j.State, Queue: j.Queue, Attempt: int(j.Attempt), Messages: int(j.Messages),
		ScheduledAt: ptr(j.ScheduledAt.Time, j.ScheduledAt.Valid), LastError: ptr(j.LastError, j.LastError != ""),
	}, nil
}

// conflictKey is a key that a conflict is stored under: <key>#<position>. A key that is a hash has no such form.
var conflictKey = regexp.MustCompile(`(?s)^(.*)#[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/[0-9]+/[0-9]+$`)

func (s *Store) lookConflicts(ctx context.Context, tx pgx.Tx, l *Story) ([]Named, error) {
	// In the order of bytes $ comes next to #, so that between them is what begins with the key and a #.
	rows, err := s.q.LookConflicts(ctx, tx, storedb.LookConflictsParams{Route: l.Route, First: l.Key + "#", Last: l.Key + "$", Most: someConflicts})
	if err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(r storedb.LookConflictsRow) bool {
		m := conflictKey.FindStringSubmatch(r.MessageKey)
		return m == nil || m[1] != l.Key
	})
	if m := conflictKey.FindStringSubmatch(l.Key); m != nil {
		// Nothing but the key itself lies between it and the key with the least byte that a text can have.
		holder, err := s.q.LookConflicts(ctx, tx, storedb.LookConflictsParams{Route: l.Route, First: m[1], Last: m[1] + "\x01", Most: 1})
		if err != nil {
			return nil, err
		}
		rows = append(rows, holder...)
	}
	named := make([]Named, len(rows))
	for i, r := range rows {
		named[i] = Named{r.ID, r.MessageKey}
	}
	return named, nil
}
