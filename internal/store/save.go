package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ferry-forward/ferry/internal/message"
)

// Save stores a batch in one transaction: messages, deliveries, jobs, ledger and positions, all or nothing. Only after
// it returned without an error may the batch's offsets be committed.
//
// It returns *message.PositionsMovedError when a partition no longer stands where the batch begins, else an *Error.
// When that is a RowFault, some record of the batch is to blame.
func (s *Store) Save(ctx context.Context, b *message.Batch) (*message.Saved, error) {
	rows, err := prepare(b)
	if err != nil {
		return nil, err
	}
	saved, err := s.save(ctx, b, rows)
	var e *Error
	if errors.As(err, &e) && e.RowFault() && strip(rows) {
		// The database refuses an unstorable record even as a failed one: then without its content.
		saved, err = s.save(ctx, b, rows)
	}
	if err != nil {
		return nil, err
	}
	return saved, nil
}

// row is a record that is to be stored for one route.
type row struct {
	i       int // index in the batch
	in      *message.Incoming
	key     string
	sum     []byte // SHA-256 of the value, nil for a null one
	headers string
	bare    bool // without key, headers and value
}

type routeKey struct{ route, key string }

func (r *row) routeKey() routeKey { return routeKey{r.in.Route, r.key} }

func prepare(b *message.Batch) ([]row, error) {
	rows := make([]row, 0, len(b.Incoming))
	for i := range b.Incoming {
		in := &b.Incoming[i]
		if in.Result != message.IngestStored && in.Result != message.IngestUnstorable {
			continue
		}
		r := row{i: i, in: in, key: message.NormalizeKey(in.Key)}
		if in.Record.Value != nil {
			sum := sha256.Sum256(in.Record.Value)
			r.sum = sum[:]
		}
		var err error
		if r.headers, err = encodeHeaders(in.Record.Headers); err != nil {
			return nil, fmt.Errorf("encoding the headers of %v: %w", in.Record.Position, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// strip takes the content out of the unstorable records, and says whether there was any.
func strip(rows []row) bool {
	any := false
	for i := range rows {
		if r := &rows[i]; r.in.Result == message.IngestUnstorable && !r.bare {
			r.bare, any = true, true
		}
	}
	return any
}

func (s *Store) save(ctx context.Context, b *message.Batch, rows []row) (*message.Saved, error) {
	op := fmt.Sprintf("storing a batch of %d records", len(b.Incoming))
	var saved *message.Saved
	err := s.inTx(ctx, op, func(tx pgx.Tx) error {
		saved = &message.Saved{Results: make([]message.IngestResult, len(b.Incoming))}
		for i, in := range b.Incoming {
			saved.Results[i] = in.Result
		}
		// Before all else: see advance.
		if err := s.advance(ctx, tx, b); err != nil {
			return err
		}
		v := &saving{s: s, tx: tx, rows: rows, saved: saved, again: b.Again}
		if err := v.run(ctx); err != nil {
			return err
		}
		sums := sumUp(b.Incoming, saved.Results)
		if b.Again == nil {
			return s.addToLedger(ctx, tx, sums)
		}
		known := v.known(b.Incoming, sums)
		if err := s.addToLedger(ctx, tx, sums); err != nil {
			return err
		}
		return s.addTallies(ctx, tx, known)
	})
	return saved, err
}

// saving is one run of the transaction's middle part: messages, jobs, deliveries.
type saving struct {
	s     *Store
	tx    pgx.Tx
	rows  []row
	saved *message.Saved
	again *message.Again // nil: the records are read in their turn

	retried map[int]bool // by the index in the batch: the record's message was deleted to be stored anew
	news    []newMessage
	failed  []failedMessage
}

// stored is the message that holds a key: of this batch or an earlier one.
type stored struct {
	sum []byte
	pos message.Position
}

func (v *saving) run(ctx context.Context) error {
	if v.again != nil {
		if err := v.dropUnstorable(ctx); err != nil {
			return err
		}
	}
	// Of several records with one key the first is the message. The others are compared with it here, since the
	// statement would only say that they exist.
	first := make(map[routeKey]int, len(v.rows))
	unique := make([]*row, 0, len(v.rows))
	for i := range v.rows {
		r := &v.rows[i]
		if _, again := first[r.routeKey()]; !again {
			first[r.routeKey()] = i
			unique = append(unique, r)
		}
	}
	ids, err := v.insert(ctx, unique)
	if err != nil {
		return err
	}
	holders, err := v.existing(ctx, unique, ids)
	if err != nil {
		return err
	}
	var conflicts []*row
	for i := range v.rows {
		r := &v.rows[i]
		k := r.routeKey()
		if id, ok := ids[k]; ok && first[k] == i {
			v.add(r, id)
			holders[k] = stored{r.sum, r.in.Record.Position}
			continue
		}
		if h := holders[k]; same(h.sum, r.sum) {
			v.saved.Results[r.i] = message.IngestDuplicate
		} else {
			conflicts = append(conflicts, r)
		}
	}
	if err := v.addConflicts(ctx, conflicts, holders); err != nil {
		return err
	}
	return v.deliveries(ctx)
}

// same compares two checksums, of which nil stands for a null value.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// add notes a new message.
func (v *saving) add(r *row, id int64) {
	if r.in.Result == message.IngestUnstorable {
		v.failed = append(v.failed, failedMessage{id, r.in.Route, message.Unstorable, r.in.Detail})
		return
	}
	v.news = append(v.news, newMessage{id: id, route: r.in.Route, bytes: int64(len(r.in.Record.Value))})
}

// addConflicts stores records whose key belongs to another message with a different payload, as failed ones under a
// key with their position: a different event that were dropped would be lost. One that is there already was read before.
func (v *saving) addConflicts(ctx context.Context, conflicts []*row, holders map[routeKey]stored) error {
	if len(conflicts) == 0 {
		return nil
	}
	under := make([]*row, len(conflicts))
	for i, r := range conflicts {
		c := *r
		c.key = message.ConflictKey(r.key, r.in.Record.Position)
		under[i] = &c
	}
	ids, err := v.insert(ctx, under)
	if err != nil {
		return err
	}
	for i, r := range conflicts {
		id, ok := ids[under[i].routeKey()]
		if !ok {
			v.saved.Results[r.i] = message.IngestDuplicate
			continue
		}
		pair := message.ConflictPair{
			Route: r.in.Route, Key: r.key, First: holders[r.routeKey()].pos, Second: r.in.Record.Position,
		}
		v.saved.Results[r.i] = message.IngestConflict
		v.saved.Conflicts = append(v.saved.Conflicts, pair)
		v.failed = append(v.failed, failedMessage{
			id, r.in.Route, message.Conflict, fmt.Sprintf("key %q is that of %v, with another payload", r.key, pair.First),
		})
	}
	return nil
}
