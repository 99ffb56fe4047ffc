package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store/storedb"
)

// Audit is what one snapshot of the database has: the sums that were written with the rows, what the rows themselves come
// to, and what fits together nowhere. It judges nothing.
type Audit struct {
	// Since is when the messages were received that were looked at one by one. Zero: all of them, and all were counted.
	Since      time.Time
	Routes     []AuditRoute     // by name
	Partitions []AuditPartition // by route, topic, partition
	Places     []AuditPlace     // by route; none with Since
	Positions  []AuditPosition
	Worked     []string // the routes that live forwarders work
	Damage     []Damage
}

// AuditRoute are the sums of a route.
type AuditRoute struct {
	Name string
	// Stored to Unstorable are the ledger's, over all partitions.
	Stored, Conflicts, Unstorable int64
	// SettledDelivered and SettledFailed are what settling has added up.
	SettledDelivered, SettledFailed int64
	PurgedDelivered, PurgedFailed   int64
	// Messages, Pending, Delivered and Failed are rows that were counted. With Since they follow from the sums.
	Messages, Pending, Delivered, Failed int64
	Listed                               int64 // rows of failures
}

// AuditPartition is a row of the ledger.
type AuditPartition struct {
	Route string
	message.TopicPartition
	TopicID                                                                          message.TopicID
	Consumed, Stored, Duplicates, Conflicts, Unstorable, Filtered, SkippedTombstones int64
	PurgedDelivered, PurgedFailed                                                    int64
}

// AuditPlace compares the ledger with the rows where they can be counted apart: by route, topic id and partition. Without
// topic ids that may be several topics.
type AuditPlace struct {
	Route          string
	Topics         []string
	TopicID        message.TopicID
	Partition      int32
	Stored, Purged int64
	Rows           int64
	Unknown        []int64 // of a place that is not in the ledger: some of its messages
}

// AuditPosition is where a group stands.
type AuditPosition struct {
	Group string
	message.StoredPosition
	ExpiredUnread, Skipped int64
}

// Damage is something that fits nothing else.
type Damage struct {
	Kind  DamageKind
	Route string
	N     int64
	IDs   []int64 // the first few: of messages, and of jobs where the kind is about them
}

// DamageKind is what fits nothing else.
type DamageKind string

// The kinds of damage, a closed set.
const (
	MessageAlone     DamageKind = "message alone"    // no row in deliveries
	DeliveryAlone    DamageKind = "delivery alone"   // no row in messages
	PendingNoJob     DamageKind = "none"             // pending, owned by no job, waiting in no lane
	PendingMissing   DamageKind = "missing"          // pending, its job is gone
	PendingCompleted DamageKind = "completed"        // pending, its job is done
	PendingDiscarded DamageKind = "discarded"        // pending, its job was given up
	PendingCancelled DamageKind = "cancelled"        // pending, its job was cancelled
	PendingForeign   DamageKind = "foreign"          // pending, its job does not know it
	FailedUnlisted   DamageKind = "unlisted"         // failed, no row in failures
	FailedUnlettered DamageKind = "unlettered"       // failed, its dead letter is neither written nor under way
	ListedPending    DamageKind = "listed pending"   // a row in failures, and pending
	ListedDelivered  DamageKind = "listed delivered" // a row in failures, and delivered
	ListedGone       DamageKind = "listed gone"      // a row in failures, and no row in deliveries
	DeliveredUnsent  DamageKind = "unsent"           // delivered, but by no request
	JobAlone         DamageKind = "job alone"        // a live job without messages; IDs are of jobs
)

const (
	// auditStatement bounds a statement of an audit: it reads tables whole.
	auditStatement = 10 * time.Minute
	// auditExamples is how many ids a kind of damage comes with.
	auditExamples = 10
	// auditAlive is how old a forwarder's last sign of life may be.
	auditAlive = 30 * time.Second
)

// Audit reads all that there is to compare, in one snapshot and without a lock that anybody waits for. With a time it
// counts no rows, and looks one by one only at messages received since then.
func (s *Store) Audit(ctx context.Context, since time.Time) (*Audit, error) {
	var a *Audit
	err := s.again(ctx, "auditing", func() error {
		return s.once(ctx, snapshotSQL(s.cfg.PollOnly, auditStatement), func(tx pgx.Tx) error {
			v := auditing{s: s, tx: tx, a: &Audit{Since: since}, routes: map[string]*AuditRoute{}}
			a = v.a
			return v.run(ctx)
		})
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// AuditPositions reads where the groups stand now.
func (s *Store) AuditPositions(ctx context.Context) ([]AuditPosition, error) {
	var rows []storedb.AuditPositionsRow
	if err := s.again(ctx, "reading positions", func() (err error) {
		rows, err = s.q.AuditPositions(ctx, s.pool)
		return err
	}); err != nil {
		return nil, err
	}
	return auditPositions(rows), nil
}

// AuditStep says what tells that Ferry itself moved a position's row to where it stands: the offset behind the last record
// before it that is stored, and whether the transaction that wrote the row last counted records of the partition.
func (s *Store) AuditStep(ctx context.Context, p AuditPosition) (storedTo int64, counted bool, err error) {
	var rows []storedb.AuditStepRow
	err = s.again(ctx, "reading who moved a position", func() (err error) {
		rows, err = s.q.AuditStep(ctx, planned{s.pool}, p.Group, p.Topic, p.Partition)
		return err
	})
	if err != nil || len(rows) == 0 {
		return 0, false, err
	}
	return rows[0].StoredTo, rows[0].Counted, nil
}

func auditPositions(rows []storedb.AuditPositionsRow) []AuditPosition {
	out := make([]AuditPosition, len(rows))
	for i, r := range rows {
		out[i] = AuditPosition{
			Group: r.Group, ExpiredUnread: r.ExpiredUnread, Skipped: r.Skipped,
			StoredPosition: message.StoredPosition{
				TopicPartition: message.TopicPartition{Topic: r.Topic, Partition: r.Partition}, TopicID: r.TopicID.Bytes, NextOffset: r.NextOffset,
			},
		}
	}
	return out
}

// auditing is one audit.
type auditing struct {
	s      *Store
	tx     pgx.Tx
	a      *Audit
	routes map[string]*AuditRoute
	from   int64              // messages with lower ids are not looked at one by one
	since  pgtype.Timestamptz // the same as a time
}

func (v *auditing) run(ctx context.Context) error {
	steps := []func(context.Context) error{v.sums, v.positions, v.count, v.damage}
	if !v.a.Since.IsZero() {
		steps = []func(context.Context) error{v.sums, v.positions, v.infer, v.find, v.damage}
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.routes)) {
		v.a.Routes = append(v.a.Routes, *v.routes[name])
	}
	slices.SortFunc(v.a.Damage, func(a, b Damage) int { return cmp.Or(cmp.Compare(a.Route, b.Route), cmp.Compare(a.Kind, b.Kind)) })
	return nil
}

func (v *auditing) route(name string) *AuditRoute {
	if v.routes[name] == nil {
		v.routes[name] = &AuditRoute{Name: name}
	}
	return v.routes[name]
}

// sums reads what was added up: by the ingester, by settling and by retention.
func (v *auditing) sums(ctx context.Context) error {
	ledger, err := v.s.q.AuditLedger(ctx, v.tx)
	if err != nil {
		return err
	}
	for _, l := range ledger {
		v.a.Partitions = append(v.a.Partitions, AuditPartition{
			Route: l.Route, TopicPartition: message.TopicPartition{Topic: l.Topic, Partition: l.Partition}, TopicID: l.TopicID.Bytes,
			Consumed: l.Consumed, Stored: l.Stored, Duplicates: l.Duplicates, Conflicts: l.Conflicts, Unstorable: l.Unstorable,
			Filtered: l.Filtered, SkippedTombstones: l.SkippedTombstones,
			PurgedDelivered: l.PurgedDelivered, PurgedFailed: l.PurgedFailed,
		})
		r := v.route(l.Route)
		r.Stored += l.Stored
		r.Conflicts += l.Conflicts
		r.Unstorable += l.Unstorable
		r.PurgedDelivered += l.PurgedDelivered
		r.PurgedFailed += l.PurgedFailed
	}
	tallies, err := v.s.q.AuditTallies(ctx, v.tx)
	if err != nil {
		return err
	}
	for _, t := range tallies {
		r := v.route(t.Route)
		r.SettledDelivered, r.SettledFailed = t.Delivered, t.Failed
	}
	failures, err := v.s.q.AuditFailures(ctx, v.tx)
	if err != nil {
		return err
	}
	for _, f := range failures {
		v.route(f.Route).Listed = f.N
	}
	return nil
}

func (v *auditing) positions(ctx context.Context) error {
	rows, err := v.s.q.AuditPositions(ctx, v.tx)
	if err != nil {
		return err
	}
	v.a.Positions = auditPositions(rows)
	v.a.Worked, err = v.s.q.AuditWorked(ctx, v.tx, auditAlive.Seconds())
	return err
}

// infer says what the rows must come to by the sums.
func (v *auditing) infer(context.Context) error {
	for _, r := range v.routes {
		r.Delivered = r.SettledDelivered - r.PurgedDelivered
		r.Failed = r.SettledFailed + r.Conflicts + r.Unstorable - r.PurgedFailed
		r.Pending = r.Stored - r.SettledDelivered - r.SettledFailed - r.Conflicts - r.Unstorable
	}
	return nil
}

// find looks for the first id that a message received at the time may have.
func (v *auditing) find(ctx context.Context) error {
	v.since = stamp(v.a.Since)
	before, err := v.s.q.MessageBefore(ctx, v.tx, 0, stamp(v.a.Since.Add(-receivedSlack)))
	v.from = before + 1
	return err
}
