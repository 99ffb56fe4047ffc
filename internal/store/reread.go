package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store/storedb"
)

// countTime bounds the statements that count messages: about a second for some millions of them.
const countTime = 10 * time.Minute

// Missing counts what the sums of routes have in a partition beyond what there is, for those routes that lack something,
// and how many messages of each route were purged there.
// The records from offset `from` on are about to be read again; end is the offset behind the last one that was ever read.
//
// Sums do not tell which messages they counted, and a route that was added to a topic later has not read its beginning. A
// record before its first message is therefore taken for one that was stored before only if the ledger counts enough
// reads, beside those messages, to fill the offsets from there on. Otherwise it is new, so that what is missing elsewhere
// is not made good by it.
func (s *Store) Missing(ctx context.Context, at message.Position, end int64, routes []string) (
	missing map[string]message.Missing, purged map[string]int64, err error,
) {
	err = s.inTx(ctx, "counting the messages of "+at.TopicPartition.String(), func(tx pgx.Tx) error {
		missing, purged = map[string]message.Missing{}, map[string]int64{}
		if err := s.q.StatementLimit(ctx, tx, strconv.FormatInt(countTime.Milliseconds(), 10)); err != nil {
			return err
		}
		rows, err := s.q.MissingCount(ctx, tx, storedb.MissingCountParams{
			Routes: routes, Topic: at.Topic, TopicID: uuid(at.TopicID), Partition: at.Partition, NoTopicID: uuid(message.TopicID{}),
		})
		if err != nil {
			return err
		}
		for _, r := range rows {
			purged[r.Route] = r.Purged
			n := r.Stored - r.Messages - r.Purged
			if n <= 0 {
				continue
			}
			first := r.FirstOffset
			if first < 0 {
				first = end
			}
			if r.Consumed-r.Messages >= first-at.Offset {
				first = min(first, at.Offset)
			}
			missing[r.Route] = message.Missing{Messages: n, From: first}
		}
		return s.settledBefore(ctx, tx, missing)
	})
	return missing, purged, err
}

// settledBefore adds how many messages of the routes were delivered, and failed, when they were deleted.
func (s *Store) settledBefore(ctx context.Context, tx pgx.Tx, missing map[string]message.Missing) error {
	if len(missing) == 0 {
		return nil
	}
	rows, err := s.q.MissingSettled(ctx, tx, slices.Sorted(maps.Keys(missing)))
	if err != nil {
		return err
	}
	for _, r := range rows {
		m := missing[r.Route]
		m.Delivered, m.Failed = max(0, r.Delivered), max(0, r.Failed)
		missing[r.Route] = m
	}
	return nil
}

// dropUnstorable deletes the messages of records that the database refused when they were read, so that these are stored
// as if they came for the first time. When it refuses them again, the transaction is rolled back, and stored without them.
func (v *saving) dropUnstorable(ctx context.Context) error {
	type place struct {
		route  string
		offset int64
	}
	var p storedb.UnstorableLockParams
	index := map[place]int{}
	for _, r := range v.rows {
		if r.in.Result != message.IngestStored {
			continue
		}
		rec := r.in.Record
		index[place{r.in.Route, rec.Offset}] = r.i
		p.Routes, p.Topics, p.TopicIds = append(p.Routes, r.in.Route), append(p.Topics, rec.Topic), append(p.TopicIds, uuid(rec.TopicID))
		p.Partitions, p.RecordOffsets = append(p.Partitions, rec.Partition), append(p.RecordOffsets, rec.Offset)
	}
	if len(index) == 0 {
		return nil
	}
	rows, err := v.s.q.UnstorableLock(ctx, v.tx, p)
	if err != nil || len(rows) == 0 {
		return err
	}
	v.retried = map[int]bool{}
	ids := make([]int64, len(rows))
	for i, r := range rows {
		ids[i] = r.MessageID
		v.retried[index[place{r.Route, r.RecordOffset}]] = true
	}
	// They were stored once, and stay in the sums.
	if _, err := v.s.q.PurgeDelete(ctx, v.tx, ids, message.StatusFailed.String()); err != nil {
		return fmt.Errorf("deleting unstorable messages: %w", err)
	}
	return nil
}

// rereader stands for a forwarder in the tallies.
const rereader = "reread"

// known finds among the new messages those that were counted when they were stored before, and books them as duplicates:
// two reads, one message. It returns what is to be taken off the tallies, which still count some of them as settled, and notes
// what is still missing.
func (v *saving) known(incoming []message.Incoming, ledger map[ledgerKey]*sums) tallies {
	v.saved.Missing = maps.Clone(v.again.Missing)
	settled := tallies{}
	for i, result := range v.saved.Results {
		in := &incoming[i]
		m, ok := v.saved.Missing[in.Route]
		if !ok || m.Messages == 0 || in.Record.Offset < m.From || v.retried[i] {
			continue
		}
		failed := false
		switch result {
		case message.IngestStored:
		case message.IngestConflict, message.IngestUnstorable:
			failed = true // and counted so by the ledger once more: it has probably failed before
		case message.IngestDuplicate, message.IngestFiltered, message.IngestTombstone:
			continue
		}
		m.Messages--
		l := ledger[keyOf(in)]
		l.stored--
		l.duplicates++
		switch {
		case m.Failed > 0 && (failed || m.Delivered == 0):
			m.Failed--
			settled.add(rereader, in.Route, tally{failed: -1})
		case m.Delivered > 0:
			m.Delivered--
			settled.add(rereader, in.Route, tally{delivered: -1})
		}
		v.saved.Missing[in.Route] = m
	}
	return settled
}
