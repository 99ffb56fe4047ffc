package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// books reads what the database says, as an operator would with psql. For one goroutine at a time.
type books struct{ conn *pgx.Conn }

func openBooks(ctx context.Context, url string) (*books, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("connecting to Postgres: %w", err)
	}
	return &books{conn: conn}, nil
}

func (b *books) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = b.conn.Close(ctx) // the server is stopped next
}

// tally is where all messages stand.
type tally struct {
	consumed, duplicates                int // by the ingester's ledger
	stored, delivered, retrying, failed int
	pending                             int // retrying ones included
	unwritten                           int // failed ones whose dead letter is not written yet
}

func (b *books) tally(ctx context.Context) (tally, error) {
	var t tally
	err := b.conn.QueryRow(ctx, `
		SELECT count(*),
			count(*) FILTER (WHERE status = 'delivered'),
			count(*) FILTER (WHERE status = 'pending' AND next_attempt_at IS NOT NULL),
			count(*) FILTER (WHERE status = 'failed'),
			count(*) FILTER (WHERE status = 'pending'),
			(SELECT coalesce(sum(consumed), 0) FROM ferry.ledger),
			(SELECT coalesce(sum(duplicates), 0) FROM ferry.ledger),
			(SELECT count(*) FROM ferry.deliveries WHERE status = 'failed' AND dead_lettered_at IS NULL)
		FROM ferry.message_status`).
		Scan(&t.stored, &t.delivered, &t.retrying, &t.failed, &t.pending, &t.consumed, &t.duplicates, &t.unwritten)
	if err != nil {
		return tally{}, fmt.Errorf("counting the messages: %w", err)
	}
	return t, nil
}

// row is one message as message_status shows it.
type row struct {
	MessageID int64
	Route     string
	Key       string
	Topic     string
	Partition int32
	Offset    int64
	Status    string
	Reason    string
	Detail    string
	Attempts  int // that count
	Requests  int // all
	Error     string
}

func (b *books) rows(ctx context.Context) ([]row, error) {
	rows, err := b.conn.Query(ctx, `
		SELECT message_id, route, message_key, topic, partition, "offset", status, coalesce(reason, ''), coalesce(detail, ''),
			attempts, (SELECT count(*) FROM ferry.attempts a WHERE a.message_id = s.message_id), coalesce(error, '')
		FROM ferry.message_status s`)
	if err != nil {
		return nil, fmt.Errorf("reading message_status: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		return nil, fmt.Errorf("reading message_status: %w", err)
	}
	return all, nil
}

// latency returns the median and the 99th percentile from Kafka's timestamp to delivered, in ms, of what was delivered by
// its first request.
func (b *books) latency(ctx context.Context) (p50, p99 float64, err error) {
	err = b.conn.QueryRow(ctx, `
		SELECT coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), 0), coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY ms), 0)
		FROM (
			SELECT extract(epoch FROM settled_at - produced_at)::float8 * 1000 AS ms
			FROM ferry.message_status s
			WHERE status = 'delivered' AND (SELECT count(*) FROM ferry.attempts a WHERE a.message_id = s.message_id) = 1
		) AS first`).Scan(&p50, &p99)
	if err != nil {
		return 0, 0, fmt.Errorf("reading the latency: %w", err)
	}
	return p50, p99, nil
}

// story is all that is known of one message.
type story struct {
	row
	kafkaKey   string
	payload    string
	producedAt time.Time
	settledAt  time.Time
	attempts   []attempt
}

type attempt struct {
	Number     int
	StartedAt  time.Time
	DurationMS int
	Counted    bool
	Verdict    string
	HTTPStatus *int
	ErrorCode  string
	Error      string
}

// story tells of the delivered message with the most to tell: most attempts, best of all one whose answer was lost.
func (b *books) story(ctx context.Context) (*story, error) {
	var s story
	var producedAt *time.Time
	err := b.conn.QueryRow(ctx, `
		SELECT s.message_id, s.route, s.message_key, s.topic, s.partition, s."offset", s.status, coalesce(s.detail, ''), s.attempts,
			s.produced_at, s.settled_at, convert_from(coalesce(m.kafka_key, ''), 'UTF8'), convert_from(m.payload, 'UTF8')
		FROM ferry.message_status s JOIN ferry.messages m ON m.id = s.message_id
		WHERE s.status = 'delivered' AND s.route = 'vehicle-event'
		ORDER BY s.detail = 'duplicate' DESC NULLS LAST, s.attempts DESC, s.message_id
		LIMIT 1`).
		Scan(&s.MessageID, &s.Route, &s.Key, &s.Topic, &s.Partition, &s.Offset, &s.Status, &s.Detail, &s.Attempts,
			&producedAt, &s.settledAt, &s.kafkaKey, &s.payload)
	if err != nil {
		return nil, fmt.Errorf("choosing a message to tell of: %w", err)
	}
	if producedAt != nil {
		s.producedAt = *producedAt
	}
	rows, err := b.conn.Query(ctx, `
		SELECT attempt, started_at, duration_ms, counted, verdict, http_status, coalesce(error_code, ''), coalesce(error, '')
		FROM ferry.attempts WHERE message_id = $1 ORDER BY attempt`, s.MessageID)
	if err != nil {
		return nil, fmt.Errorf("reading the attempts of message %d: %w", s.MessageID, err)
	}
	if s.attempts, err = pgx.CollectRows(rows, pgx.RowToStructByPos[attempt]); err != nil {
		return nil, fmt.Errorf("reading the attempts of message %d: %w", s.MessageID, err)
	}
	return &s, nil
}
