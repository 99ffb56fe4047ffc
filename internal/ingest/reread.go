package ingest

import (
	"context"
	"log/slog"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
)

// Rereader stores records of one partition that are read once more on purpose, as far as they are missing: by the rules of
// the ingester and with its transaction, but for the positions, which stay as they are. It is not for use by several
// goroutines at once.
type Rereader struct {
	eval    *evaluator
	save    SaveFunc
	log     *slog.Logger
	missing map[string]message.Missing
	results map[string]map[message.IngestResult]int64
}

// SaveFunc stores a batch: see Saver.
type SaveFunc func(ctx context.Context, b *message.Batch) (*message.Saved, error)

// NewRereader makes a rereader for some routes. Missing is what the sums of the routes have too much (store.Missing).
func NewRereader(routes []*route.Route, missing map[string]message.Missing, save SaveFunc, log *slog.Logger) *Rereader {
	eval := newEvaluator(Config{Routes: routes, Logger: log})
	eval.metrics = unmeasured{}
	return &Rereader{eval: eval, save: save, log: log, missing: missing, results: map[string]map[message.IngestResult]int64{}}
}

// unmeasured is for a process that serves no metrics.
type unmeasured struct{}

func (unmeasured) KeyFallback(string) {}
func (unmeasured) FilterError(string) {}

// Store stores records. When it returns an error, some of them may be stored; all of them can be given again.
func (r *Rereader) Store(ctx context.Context, records []*message.Record) error {
	var incoming []message.Incoming
	for _, record := range records {
		incoming = append(incoming, r.eval.incoming(ctx, record)...)
	}
	if len(incoming) == 0 {
		return nil
	}
	return r.store(ctx, incoming)
}

// store stores what routes make of records; in halves, when the database refuses some of it, until the one to blame is
// alone. That one is stored as failed, unless it is so already.
func (r *Rereader) store(ctx context.Context, incoming []message.Incoming) error {
	saved, err := r.save(ctx, &message.Batch{Incoming: incoming, Again: &message.Again{Missing: r.missing}})
	switch half := len(incoming) / 2; {
	case err == nil:
		r.missing = saved.Missing
		r.count(incoming, saved)
		return nil
	case !isRowFault(err):
		return err
	case half > 0:
		if err := r.store(ctx, incoming[:half]); err != nil {
			return err
		}
		return r.store(ctx, incoming[half:])
	case !markUnstorable(&incoming[0], err):
		return err
	}
	tellUnstorable(r.log, incoming[0].Record, err)
	return r.store(ctx, incoming)
}

func (r *Rereader) count(incoming []message.Incoming, saved *message.Saved) {
	for i, result := range saved.Results {
		name := incoming[i].Route
		if r.results[name] == nil {
			r.results[name] = map[message.IngestResult]int64{}
		}
		r.results[name][result]++
	}
	tellConflicts(r.log, saved.Conflicts)
}

// Results says what became of the records for a route.
func (r *Rereader) Results(route string) map[message.IngestResult]int64 { return r.results[route] }
