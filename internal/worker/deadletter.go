package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/riverqueue/river"
	"golang.org/x/sync/semaphore"

	"github.com/ferry-forward/ferry/internal/groupcommit"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/riverjobs"
)

// Producer writes records to Kafka.
type Producer interface {
	// Produce writes a record to the topic of its position and returns when Kafka has it for sure. An error may say
	// TooLarge (the topic takes no record of this size), NoTopic (there is none of this name) and Odd (it is about this
	// record, not about the topic).
	Produce(ctx context.Context, r *message.Record) error
}

// DeadLetterStore is what the worker needs of the database.
type DeadLetterStore interface {
	DeadLetters(ctx context.Context, ids []int64) (map[int64]*store.DeadLetter, error)
	DeadLettered(ctx context.Context, written []store.Written) error
}

// DeadLetterMetrics takes what the worker counts.
type DeadLetterMetrics interface {
	DeadLetter(route string, result message.DeadLetterResult)
}

// DeadLetterConfig is what a DeadLetter worker needs.
type DeadLetterConfig struct {
	Topics   map[string]string // of the routes that have dead letters
	Producer Producer          // nil: this forwarder has no Kafka, and works none of these jobs
	Store    DeadLetterStore
	Metrics  DeadLetterMetrics
	Logger   *slog.Logger
	JobTime  time.Duration // how long one run of a job may take
	// Tell is told when a topic takes nothing, and with an empty why when it does again. It must not block.
	Tell func(topic, why string)
}

const (
	// lettersAtOnce is how many dead letters are on their way.
	lettersAtOnce = 100
	// lettersBytes bounds what they have in memory, beside librdkafka's copy. A larger one goes alone.
	lettersBytes = 32 << 20
	// letterBytes is what a dead letter takes beside its record.
	letterBytes = 4 << 10
	// leaveAlone is how long a job rests that this forwarder can't do anything for.
	leaveAlone = time.Minute
	// drainGrace is what a dead letter on its way gets when the process stops. Then it is given back, and may come twice.
	drainGrace = 2 * time.Second
)

// DeadLetter is the River worker that writes dead letters.
//
// A job is done only when Kafka has the dead letter and the database knows. Whatever happens before, it stays: so there is
// one dead letter for each failure or, when a process dies in between, more of them, with equal headers.
type DeadLetter struct {
	river.WorkerDefaults[riverjobs.DeadLetterArgs]

	cfg    DeadLetterConfig
	topics *deadTopics
	bytes  *semaphore.Weighted
	loads  *groupcommit.Group[int64, *store.DeadLetter]
	writes *groupcommit.Group[store.Written, struct{}]

	draining context.Context //nolint:containedctx // ends when Drain is called: a process-wide signal
	drain    context.CancelFunc
}

// NewDeadLetter returns the worker.
func NewDeadLetter(cfg DeadLetterConfig) *DeadLetter {
	w := &DeadLetter{
		cfg: cfg, topics: &deadTopics{tell: cfg.Tell, topics: map[string]*deadTopic{}}, bytes: semaphore.NewWeighted(lettersBytes),
	}
	w.loads = groupcommit.New(groupcommit.Config[int64, *store.DeadLetter]{Run: w.load, Max: lettersAtOnce, Parallel: 2})
	w.writes = groupcommit.New(groupcommit.Config[store.Written, struct{}]{Run: w.note, Max: settleBatch})
	w.draining, w.drain = context.WithCancel(context.Background())
	return w
}

// Register adds the worker to River's bundle. Every forwarder does, also one that works none of these jobs: when it leads
// River's maintenance, it would discard stuck jobs of a kind that it does not know.
func (w *DeadLetter) Register(bundle *river.Workers) error {
	if err := river.AddWorkerSafely(bundle, w); err != nil {
		return fmt.Errorf("registering the dead letter worker: %w", err)
	}
	return nil
}

// Queues adds River's queue, where there is a Kafka to write to.
func (w *DeadLetter) Queues(queues map[string]river.QueueConfig) {
	if w.cfg.Producer != nil {
		queues[riverjobs.DeadLetters] = river.QueueConfig{MaxWorkers: lettersAtOnce}
	}
}

// Drain gives back what is not written soon.
func (w *DeadLetter) Drain() { w.drain() }

// Timeout is River's limit for one run.
func (w *DeadLetter) Timeout(*river.Job[riverjobs.DeadLetterArgs]) time.Duration {
	return w.cfg.JobTime
}

// NextRetry is when a job that panicked runs again.
func (w *DeadLetter) NextRetry(*river.Job[riverjobs.DeadLetterArgs]) time.Time {
	return time.Now().Add(leaveAlone)
}

// Work runs one job.
func (w *DeadLetter) Work(ctx context.Context, job *river.Job[riverjobs.DeadLetterArgs]) (err error) {
	topic, known := w.cfg.Topics[job.Args.Route]
	if !known || w.cfg.Producer == nil {
		// Another forwarder's: with a newer route file, or with the one that had dead_letter when the message failed.
		w.cfg.Logger.Warn("a dead letter of a route that has no dead_letter in this forwarder's route file waits for one that has",
			"route", job.Args.Route, "message_id", job.Args.MessageID)
		return river.JobSnooze(leaveAlone)
	}
	v, rest := w.topics.enter(topic, time.Now())
	if rest > 0 {
		return river.JobSnooze(rest)
	}
	defer v.unknown()
	defer func() {
		if p := recover(); p != nil {
			err = crashError(p)
			w.cfg.Logger.Error("writing a dead letter panicked", "job_id", job.ID, "route", job.Args.Route, "error", err)
		}
	}()
	ctx, stop := w.untilDrained(ctx)
	defer stop()
	return w.write(ctx, v, job.Args)
}

// untilDrained is a context that also ends when the process stops, a little later.
func (w *DeadLetter) untilDrained(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	detach := context.AfterFunc(w.draining, func() {
		select {
		case <-ctx.Done():
		case <-time.After(drainGrace):
			cancel()
		}
	})
	return ctx, func() { detach(); cancel() }
}

func (w *DeadLetter) write(ctx context.Context, v visit, a riverjobs.DeadLetterArgs) error {
	size := min(a.Bytes+letterBytes, lettersBytes)
	if err := w.bytes.Acquire(ctx, size); err != nil {
		return w.giveBack()
	}
	defer w.bytes.Release(size)
	l, err := w.loads.Do(ctx, a.MessageID)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			w.cfg.Logger.Error("loading a failed message, trying again", "message_id", a.MessageID, "route", a.Route, "error", err)
		}
		return w.giveBack()
	case l == nil:
		w.cfg.Metrics.DeadLetter(a.Route, message.DeadLetterPurged)
		w.cfg.Logger.Warn("a failed message is not in the database any more, it has no dead letter", "message_id", a.MessageID,
			"message_key", a.Key, "route", a.Route)
		return nil
	case l.FailedAt.Equal(a.FailedAt) && !l.WrittenAt.IsZero():
		return nil // an earlier run died when it was done
	}
	result, err := w.produce(ctx, v.topic, a, l)
	if err != nil {
		return w.delayed(ctx, v, a, err)
	}
	v.good()
	w.cfg.Metrics.DeadLetter(a.Route, result)
	w.cfg.Logger.Debug("dead letter written", "message_id", a.MessageID, "message_key", a.Key, "route", a.Route, "topic", v.topic,
		"result", result.String())
	return w.written(ctx, a)
}

// produce writes the dead letter, with as much of the record as the topic takes.
func (w *DeadLetter) produce(ctx context.Context, topic string, a riverjobs.DeadLetterArgs, l *store.DeadLetter) (message.DeadLetterResult, error) {
	var err error
	for c := cutNothing; c <= cutKey; c++ {
		if !c.shrinks(l) {
			continue
		}
		if err = w.cfg.Producer.Produce(ctx, letter(topic, a, l, c)); err == nil {
			if c != cutNothing {
				w.cfg.Logger.Warn("a dead letter is larger than its topic takes and was written without what is too large; the message is whole in the database",
					"message_id", a.MessageID, "message_key", a.Key, "route", a.Route, "topic", topic, "result", c.result().String())
			}
			return c.result(), nil
		}
		if !tooLarge(err) {
			return "", err
		}
	}
	return "", err
}

// written has the database know, as long as the run may last. After that the dead letter is written again.
func (w *DeadLetter) written(ctx context.Context, a riverjobs.DeadLetterArgs) error {
	const first, longest = 50 * time.Millisecond, 2 * time.Second
	for wait := first; ; wait = min(2*wait, longest) {
		_, err := w.writes.Do(ctx, store.Written{MessageID: a.MessageID, FailedAt: a.FailedAt})
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			w.cfg.Logger.Error("a dead letter is written, and the database does not know yet; trying again", "message_id", a.MessageID,
				"route", a.Route, "error", err)
		}
		select {
		case <-ctx.Done():
			return w.giveBack()
		case <-time.After(wait):
		}
	}
}

// delayed has the job come back when Kafka did not take its dead letter.
func (w *DeadLetter) delayed(ctx context.Context, v visit, a riverjobs.DeadLetterArgs, err error) error {
	if ctx.Err() != nil && !asks(err, func(e interface{ NoTopic() bool }) bool { return true }) {
		return w.giveBack() // the run's time was over before anything was known
	}
	result, rest := message.DeadLetterDelayed, leaveAlone
	if asks(err, func(e interface{ NoTopic() bool }) bool { return e.NoTopic() }) {
		result = message.DeadLetterNoTopic
	}
	if !tooLarge(err) && !asks(err, func(e interface{ Odd() bool }) bool { return e.Odd() }) {
		rest = v.bad(time.Now(), err.Error())
	}
	w.cfg.Metrics.DeadLetter(a.Route, result)
	w.cfg.Logger.Error("a dead letter is not written yet, trying again", "message_id", a.MessageID, "message_key", a.Key,
		"route", a.Route, "topic", v.topic, "error", err)
	return river.JobSnooze(rest)
}

func asks[E any](err error, what func(E) bool) bool {
	var e E
	return errors.As(err, &e) && what(e)
}

func tooLarge(err error) bool {
	return asks(err, func(e interface{ TooLarge() bool }) bool { return e.TooLarge() })
}

// giveBack returns the job to its queue: at once when the process stops, else after a rest.
func (w *DeadLetter) giveBack() error {
	if w.draining.Err() != nil {
		return river.JobSnooze(0)
	}
	return river.JobSnooze(comeBack)
}

func (w *DeadLetter) load(ctx context.Context, ids []int64) ([]*store.DeadLetter, error) {
	found, err := w.cfg.Store.DeadLetters(ctx, ids)
	if err != nil {
		return nil, err
	}
	out := make([]*store.DeadLetter, len(ids))
	for i, id := range ids {
		out[i] = found[id]
	}
	return out, nil
}

func (w *DeadLetter) note(ctx context.Context, written []store.Written) ([]struct{}, error) {
	if err := w.cfg.Store.DeadLettered(ctx, written); err != nil {
		return nil, err
	}
	return make([]struct{}, len(written)), nil
}
