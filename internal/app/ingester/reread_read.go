package ingester

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/ingest"
	"github.com/ferry-forward/ferry/internal/kafka"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
)

const (
	saveTime  = 10 * time.Second // of a batch, however often it is tried
	saveEvery = 500 * time.Millisecond
)

var errSaveTime = errors.New("away for 10 s")

// read reads and stores, batch by batch. Whatever ends it, what became of the records so far is told, and how to go on.
func (r *rereading) read(ctx context.Context, missing map[string]message.Missing) error {
	records, err := kafka.NewRange(r.settings, r.span.TopicPartition, r.span.from, r.span.to)
	if err != nil {
		return app.Usage(err)
	}
	defer closeKafka(ctx, records)
	into := ingest.NewRereader(r.routes, missing, r.save, r.log.Logger)
	r.report.begin()
	for next := r.span.from; next < r.span.to && err == nil; {
		var n int
		if next, n, err = r.batch(ctx, records, into); err == nil {
			r.report.progress(next, n)
		}
	}
	if printed := r.report.end(r.routes, into); printed != nil {
		return app.Unknown(fmt.Errorf("printing: %w", printed))
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		r.report.stopped()
		return context.Cause(ctx)
	}
	return r.report.goOn(r.explain(ctx, err))
}

// batch reads some records and stores them. It returns the offset behind them, and how many they were.
func (r *rereading) batch(ctx context.Context, from *kafka.Range, into *ingest.Rereader) (int64, int, error) {
	records, next, err := from.Read(ctx, r.cfg.BatchSize, int(r.cfg.BatchBytes))
	if err != nil || len(records) == 0 {
		return next, 0, err
	}
	if err := r.sameTopic(ctx); err != nil {
		return 0, 0, err
	}
	for _, record := range records {
		record.TopicID = r.standing.TopicID
	}
	// Not cancelled by a signal: the batch is stored whole, and a key that is cut short would be another key.
	return next, len(records), into.Store(context.WithoutCancel(ctx), records)
}

// sameTopic says whether the records that were just read are those of the topic that was found at the start: ids do not
// come back, so that a topic that has its id still had it then. It is asked over a connection on which no fetch waits.
func (r *rereading) sameTopic(ctx context.Context) error {
	return app.Persist(ctx, "Kafka", "FERRY_KAFKA_BROKERS", func(ctx context.Context) error {
		id, there, err := r.kafka.TopicID(ctx, r.span.Topic)
		if err == nil && (!there || id != r.standing.TopicID) {
			err = r.recreated()
		}
		return err
	})
}

func (r *rereading) recreated() error {
	return app.Usage(fmt.Errorf("topic %s was deleted, or deleted and created again, while it was read: its records from %d on are gone",
		r.span.Topic, r.report.next))
}

// save stores a batch, and tries again while the database is away, for 10 s at most.
func (r *rereading) save(ctx context.Context, b *message.Batch) (*message.Saved, error) {
	limited, cancel := context.WithTimeoutCause(ctx, saveTime, errSaveTime)
	defer cancel()
	var last error
	for {
		saved, err := r.store.Save(limited, b)
		var database *store.Error
		if err == nil || !errors.As(err, &database) || database.RowFault() {
			return saved, err
		}
		if last == nil || limited.Err() == nil {
			last = err
		}
		select {
		case <-limited.Done():
			return nil, app.Unknown(fmt.Errorf("database was %w: %w; check FERRY_DATABASE_URL", errSaveTime, last))
		case <-time.After(saveEvery):
		}
	}
}

// explain words what ended the reading.
func (r *rereading) explain(ctx context.Context, err error) error {
	var decided *app.ExitError
	switch {
	case errors.As(err, &decided):
		return err
	case errors.Is(err, kafka.ErrSilent):
		return app.Unknown(fmt.Errorf("%w; check FERRY_KAFKA_BROKERS", err))
	case !errors.Is(err, kafka.ErrOffsetLost):
		return app.Unknown(err)
	}
	was := r.standing.TopicID
	if asked := app.Persist(ctx, "Kafka", "FERRY_KAFKA_BROKERS", r.askKafka); asked != nil {
		return asked
	}
	if r.standing.TopicID != was {
		return r.recreated()
	}
	return app.Usage(fmt.Errorf("%w: %s begins at %d now, and ends at %d; everything before %d is done, give a --from and a --to between these",
		err, r.span.TopicPartition, r.standing.First, r.standing.End, r.report.next))
}
