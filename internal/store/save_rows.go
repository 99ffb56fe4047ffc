package store

import (
	"context"
	"fmt"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store/storedb"
)

// failedMessage is a message that is failed from the start.
type failedMessage struct {
	id     int64
	route  string
	reason message.Reason
	detail string
}

// insert inserts messages, of which no two have one key, and returns the ids of those that were not there.
func (v *saving) insert(ctx context.Context, rows []*row) (map[routeKey]int64, error) {
	if len(rows) == 0 {
		return nil, nil //nolint:nilnil // a nil map is empty
	}
	n := len(rows)
	p := storedb.MessagesInsertParams{
		Ords: make([]int32, n), Routes: make([]string, n), MessageKeys: make([]string, n), Topics: make([]string, n),
		Partitions: make([]int32, n), RecordOffsets: make([]int64, n), KafkaKeys: make([][]byte, n),
		Headers: make([]string, n), Payloads: make([][]byte, n), PayloadSha256s: make([][]byte, n),
	}
	for i, r := range rows {
		rec := r.in.Record
		p.Ords[i] = int32(i)
		p.Routes[i], p.MessageKeys[i] = r.in.Route, r.key
		p.Topics[i], p.Partitions[i], p.RecordOffsets[i] = rec.Topic, rec.Partition, rec.Offset
		p.TopicIds = append(p.TopicIds, uuid(rec.TopicID))
		p.PayloadSha256s[i] = r.sum
		p.ProducedAts = append(p.ProducedAts, stamp(rec.Timestamp))
		if !r.bare {
			p.KafkaKeys[i], p.Headers[i], p.Payloads[i] = rec.Key, r.headers, rec.Value
		}
	}
	got, err := v.s.q.MessagesInsert(ctx, v.tx, p)
	if err != nil {
		return nil, fmt.Errorf("inserting messages: %w", err)
	}
	ids := make(map[routeKey]int64, len(got))
	for _, g := range got {
		ids[routeKey{g.Route, g.MessageKey}] = g.ID
	}
	return ids, nil
}

// existing reads the messages whose keys were taken. The insert has waited for whoever was inserting them, and this
// later statement sees what they committed; one that is gone again was purged in between, and all is tried anew.
func (v *saving) existing(ctx context.Context, rows []*row, inserted map[routeKey]int64) (map[routeKey]stored, error) {
	found := make(map[routeKey]stored)
	if len(inserted) == len(rows) {
		return found, nil
	}
	var routes, keys []string
	for _, r := range rows {
		if _, ok := inserted[r.routeKey()]; !ok {
			routes, keys = append(routes, r.in.Route), append(keys, r.key)
		}
	}
	got, err := v.s.q.MessagesByKey(ctx, v.tx, routes, keys)
	if err != nil {
		return nil, fmt.Errorf("reading messages by key: %w", err)
	}
	for _, g := range got {
		found[routeKey{g.Route, g.MessageKey}] = stored{g.PayloadSHA256, message.Position{
			TopicPartition: message.TopicPartition{Topic: g.Topic, Partition: g.Partition},
			TopicID:        g.TopicID.Bytes, Offset: g.Offset,
		}}
	}
	if len(found) != len(keys) {
		return nil, errVanished
	}
	return found, nil
}

// deliveries inserts the jobs of the new messages, and the state of all.
func (v *saving) deliveries(ctx context.Context) error {
	if len(v.news) > 0 {
		jobs, owner := v.s.group(v.news)
		jobIDs, err := v.s.insertJobs(ctx, v.tx, jobs)
		if err != nil {
			return err
		}
		ids, routes, owners := make([]int64, len(v.news)), make([]string, len(v.news)), make([]int64, len(v.news))
		for i, m := range v.news {
			ids[i], routes[i], owners[i] = m.id, m.route, jobIDs[owner[i]]
		}
		if err := v.s.q.DeliveriesInsert(ctx, v.tx, ids, routes, owners); err != nil {
			return fmt.Errorf("inserting deliveries: %w", err)
		}
	}
	if len(v.failed) == 0 {
		return nil
	}
	var p storedb.DeliveriesInsertFailedParams
	var letters []int64
	for _, f := range v.failed {
		if _, has := v.s.cfg.DeadLetters[f.route]; has {
			letters = append(letters, f.id)
		}
		p.MessageIds = append(p.MessageIds, f.id)
		p.Routes = append(p.Routes, f.route)
		p.Reasons = append(p.Reasons, f.reason.String())
		p.Details = append(p.Details, message.Clean(f.detail, maxText))
	}
	if err := v.s.q.DeliveriesInsertFailed(ctx, v.tx, p); err != nil {
		return fmt.Errorf("inserting failed messages: %w", err)
	}
	return v.s.deadLetter(ctx, v.tx, letters)
}
