package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store/storedb"
)

// placeKey is how rows of messages can be counted by their index.
type placeKey struct {
	route     string
	id        message.TopicID
	partition int32
}

// count counts the rows of messages and deliveries.
func (v *auditing) count(ctx context.Context) error {
	places := map[placeKey]*AuditPlace{}
	for _, p := range v.a.Partitions {
		k := placeKey{p.Route, p.TopicID, p.Partition}
		at := places[k]
		if at == nil {
			at = &AuditPlace{Route: p.Route, TopicID: p.TopicID, Partition: p.Partition}
			places[k] = at
		}
		at.Topics = append(at.Topics, p.Topic)
		at.Stored += p.Stored
		at.Purged += p.PurgedDelivered + p.PurgedFailed
	}
	ids, err := v.countMessages(ctx, places)
	if err != nil {
		return err
	}
	for _, k := range slices.SortedFunc(maps.Keys(places), func(a, b placeKey) int {
		return cmp.Or(cmp.Compare(a.route, b.route), cmp.Compare(places[a].Topics[0], places[b].Topics[0]), cmp.Compare(a.partition, b.partition),
			slices.Compare(a.id[:], b.id[:]))
	}) {
		v.a.Places = append(v.a.Places, *places[k])
	}
	deliveries, err := v.s.q.AuditDeliveries(ctx, v.tx)
	if err != nil {
		return err
	}
	for _, d := range deliveries {
		r := v.route(d.Route)
		switch message.Status(d.Status) {
		case message.StatusPending:
			r.Pending = d.N
		case message.StatusDelivered:
			r.Delivered = d.N
		case message.StatusFailed:
			r.Failed = d.N
		}
		ids[d.Route] ^= d.Mark
	}
	for _, mark := range ids {
		if mark != 0 { // messages and deliveries do not have the same ids
			return v.alone(ctx)
		}
	}
	return nil
}

// countMessages counts the rows of messages by place, and returns the marks of their ids by route. The index has all that is
// asked for; the planner, which may think otherwise of a table that was not vacuumed for a while, is kept to it.
func (v *auditing) countMessages(ctx context.Context, places map[placeKey]*AuditPlace) (map[string]int64, error) {
	if _, err := v.tx.Exec(ctx, "set local enable_seqscan = off; set local enable_bitmapscan = off"); err != nil {
		return nil, err
	}
	rows, err := v.s.q.AuditMessages(ctx, v.tx)
	if err != nil {
		return nil, err
	}
	if _, err := v.tx.Exec(ctx, "set local enable_seqscan = on; set local enable_bitmapscan = on"); err != nil {
		return nil, err
	}
	ids := map[string]int64{}
	for _, m := range rows {
		v.route(m.Route).Messages += m.N
		ids[m.Route] ^= m.Mark
		k := placeKey{m.Route, m.TopicID.Bytes, m.Partition}
		if places[k] == nil {
			if places[k], err = v.unknown(ctx, k); err != nil {
				return nil, err
			}
		}
		places[k].Rows = m.N
	}
	return ids, nil
}

// unknown names messages of a place that is not in the ledger.
func (v *auditing) unknown(ctx context.Context, k placeKey) (*AuditPlace, error) {
	rows, err := v.s.q.AuditUnknown(ctx, v.tx, storedb.AuditUnknownParams{
		Route: k.route, TopicID: uuid(k.id), Partition: k.partition, Examples: auditExamples,
	})
	if err != nil {
		return nil, err
	}
	p := &AuditPlace{Route: k.route, TopicID: k.id, Partition: k.partition}
	for _, r := range rows {
		if !slices.Contains(p.Topics, r.Topic) {
			p.Topics = append(p.Topics, r.Topic)
		}
		p.Unknown = append(p.Unknown, r.ID)
	}
	return p, nil
}

// alone names rows of messages without one in deliveries, and the reverse.
func (v *auditing) alone(ctx context.Context) error {
	messages, err := v.s.q.AuditMessagesAlone(ctx, v.tx, auditExamples, v.from, v.since)
	if err != nil {
		return err
	}
	for _, r := range messages {
		v.found(MessageAlone, r.Route, r.N, r.Ids)
	}
	deliveries, err := v.s.q.AuditDeliveriesAlone(ctx, v.tx, auditExamples, v.from, v.since)
	if err != nil {
		return err
	}
	for _, r := range deliveries {
		v.found(DeliveryAlone, r.Route, r.N, r.Ids)
	}
	return nil
}

func (v *auditing) found(kind DamageKind, route string, n int64, ids []int64) {
	v.a.Damage = append(v.a.Damage, Damage{Kind: kind, Route: route, N: n, IDs: ids})
}

// damage names messages and jobs that do not fit together.
func (v *auditing) damage(ctx context.Context) error {
	if !v.a.Since.IsZero() { // else the counts said whether there are any
		if err := v.alone(ctx); err != nil {
			return err
		}
	}
	pending, err := v.s.q.AuditPending(ctx, v.tx, auditExamples, v.from, v.since)
	if err != nil {
		return err
	}
	for _, r := range pending {
		v.found(DamageKind(r.Finding), r.Route, r.N, r.Ids)
	}
	if err := v.failed(ctx); err != nil {
		return err
	}
	listed, err := v.s.q.AuditUnfailed(ctx, v.tx, auditExamples, v.from, v.since)
	if err != nil {
		return err
	}
	for _, r := range listed {
		v.found(DamageKind("listed "+r.Finding), r.Route, r.N, r.Ids)
	}
	jobs, err := v.s.q.AuditJobs(ctx, v.tx, auditExamples, v.since)
	if err != nil {
		return err
	}
	for _, r := range jobs {
		v.found(JobAlone, r.Route, r.N, r.Ids)
	}
	return v.unsent(ctx)
}

// letter is a dead letter: of a message, and of one failure of it.
type letter struct {
	message  int64
	failedAt time.Time
}

// failed names failed messages without a row in failures, and those whose dead letter is neither written nor under way. A
// job for an earlier failure of the message does not count.
func (v *auditing) failed(ctx context.Context) error {
	rows, err := v.s.q.AuditFailed(ctx, v.tx, slices.Collect(maps.Keys(v.s.cfg.DeadLetters)), v.from, v.since)
	if err != nil || len(rows) == 0 {
		return err
	}
	jobs, err := v.s.q.AuditLetters(ctx, v.tx)
	if err != nil {
		return err
	}
	underWay := make(map[letter]bool, len(jobs))
	for _, j := range jobs {
		id, _ := strconv.ParseInt(j.MessageID, 10, 64)
		at, _ := time.Parse(time.RFC3339Nano, j.FailedAt)
		underWay[letter{id, at.UTC()}] = true
	}
	type of struct {
		kind  DamageKind
		route string
	}
	found := map[of][]int64{}
	for _, r := range rows {
		if r.Unlisted {
			k := of{FailedUnlisted, r.Route}
			found[k] = append(found[k], r.MessageID)
		}
		if r.Unwritten && !underWay[letter{r.MessageID, r.SettledAt.Time.UTC()}] {
			k := of{FailedUnlettered, r.Route}
			found[k] = append(found[k], r.MessageID)
		}
	}
	for k, ids := range found {
		v.found(k.kind, k.route, int64(len(ids)), ids[:min(len(ids), auditExamples)])
	}
	return nil
}

// unsent names what somebody's SQL made delivered, of routes in which more are delivered than settling has made so.
func (v *auditing) unsent(ctx context.Context) error {
	var routes []string
	for name, r := range v.routes {
		if v.a.Since.IsZero() && r.Delivered+r.PurgedDelivered > r.SettledDelivered {
			routes = append(routes, name)
		}
	}
	if len(routes) == 0 {
		return nil
	}
	rows, err := v.s.q.AuditUnsent(ctx, v.tx, auditExamples, routes)
	if err != nil {
		return err
	}
	for _, r := range rows {
		v.found(DeliveredUnsent, r.Route, r.N, r.Ids)
	}
	return nil
}
