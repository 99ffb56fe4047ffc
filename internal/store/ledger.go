package store

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store/storedb"
)

type ledgerKey struct {
	route string
	message.TopicPartition
	id message.TopicID
}

// sums are what a batch adds to one row of the ledger. consumed = stored + duplicates + filtered + tombstones.
type sums struct {
	consumed, stored, duplicates, conflicts, unstorable, filtered, tombstones int64
}

func (s *sums) add(r message.IngestResult) {
	s.consumed++
	switch r {
	case message.IngestStored:
		s.stored++
	case message.IngestDuplicate:
		s.duplicates++
	case message.IngestConflict:
		s.stored++
		s.conflicts++
	case message.IngestUnstorable:
		s.stored++
		s.unstorable++
	case message.IngestFiltered:
		s.filtered++
	case message.IngestTombstone:
		s.tombstones++
	}
}

func keyOf(in *message.Incoming) ledgerKey {
	return ledgerKey{in.Route, in.Record.TopicPartition, in.Record.TopicID}
}

// sumUp adds up what became of a batch.
func sumUp(incoming []message.Incoming, results []message.IngestResult) map[ledgerKey]*sums {
	rows := map[ledgerKey]*sums{}
	for i := range incoming {
		k := keyOf(&incoming[i])
		if rows[k] == nil {
			rows[k] = &sums{}
		}
		rows[k].add(results[i])
	}
	return rows
}

// addToLedger is the last statement of the ingest transaction.
func (s *Store) addToLedger(ctx context.Context, tx pgx.Tx, rows map[ledgerKey]*sums) error {
	if len(rows) == 0 {
		return nil
	}
	var p storedb.LedgerAddParams
	for _, k := range slices.SortedFunc(maps.Keys(rows), compareLedger) {
		r := rows[k]
		p.Routes = append(p.Routes, k.route)
		p.Topics = append(p.Topics, k.Topic)
		p.TopicIds = append(p.TopicIds, uuid(k.id))
		p.Partitions = append(p.Partitions, k.Partition)
		p.Consumed = append(p.Consumed, r.consumed)
		p.Stored = append(p.Stored, r.stored)
		p.Duplicates = append(p.Duplicates, r.duplicates)
		p.Conflicts = append(p.Conflicts, r.conflicts)
		p.Unstorable = append(p.Unstorable, r.unstorable)
		p.Filtered = append(p.Filtered, r.filtered)
		p.SkippedTombstones = append(p.SkippedTombstones, r.tombstones)
	}
	return s.q.LedgerAdd(ctx, tx, p)
}

func compareLedger(a, b ledgerKey) int {
	return cmp.Or(cmp.Compare(a.route, b.route), compareTP(a.TopicPartition, b.TopicPartition), bytes.Compare(a.id[:], b.id[:]))
}

func compareTP(a, b message.TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}
