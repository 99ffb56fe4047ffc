package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store/storedb"
	"github.com/ferry-forward/ferry/riverjobs"
)

// Outcome is what one run of a job made of one message.
type Outcome struct {
	MessageID, JobID int64 // the message, and the job that handled it
	Route, Key       string
	Bytes            int64 // of the payload
	// Own says that JobID is the message's own job. Else it is a group's, and a message that was not delivered leaves
	// it for a new job of its own.
	Own           bool
	Status        message.Status // pending: it goes on
	Reason        message.Reason // failed only
	Detail        string
	NextAttemptAt time.Time        // pending only: when its job runs again
	Counted       bool             // it counts as an attempt
	Attempt       *message.Attempt // nil: no request was made
	Forwarder     string           // who did it

	ifCancelled bool // it stands only while the job is cancelled; see unlessRevived
}

var errUnlocked = errors.New("it changed while it was locked")

// Settled is what became of an Outcome.
type Settled struct {
	Passed bool  // the job owned the message, which was pending: the outcome stands
	JobID  int64 // the message's job now; 0 when the outcome did not pass
	// Err is set when the database refused this outcome alone: nothing of it stands.
	Err error
}

// Settle stores outcomes, under the fence (see the package), in one transaction for all of them. Results are in the
// order of the outcomes; of several for one message the first counts. If the database refuses the values of one, the
// others are stored without it. An error means that some may be stored and others not; calling again with the same
// outcomes is safe.
func (s *Store) Settle(ctx context.Context, outcomes []Outcome) ([]Settled, error) {
	results := make([]Settled, len(outcomes))
	seen := make(map[int64]bool, len(outcomes))
	todo := make([]int, 0, len(outcomes))
	for i := range outcomes {
		if id := outcomes[i].MessageID; !seen[id] {
			seen[id] = true
			todo = append(todo, i)
		}
	}
	// In the order of the ids, so that two transactions lock their rows in one order.
	slices.SortFunc(todo, func(a, b int) int { return cmp.Compare(outcomes[a].MessageID, outcomes[b].MessageID) })
	if err := s.bisect(ctx, outcomes, todo, results); err != nil {
		return nil, err
	}
	return results, nil
}

// bisect settles outcomes[todo…]; when the database refuses a value it settles each half apart, until the guilty one
// stands alone.
func (s *Store) bisect(ctx context.Context, outcomes []Outcome, todo []int, results []Settled) error {
	if len(todo) == 0 {
		return nil
	}
	op := fmt.Sprintf("storing %d outcomes", len(todo))
	if len(todo) == 1 {
		op = fmt.Sprintf("storing the outcome of message %d", outcomes[todo[0]].MessageID)
	}
	st := settling{s: s, outcomes: outcomes, todo: todo, results: results}
	err := s.inTx(ctx, op, func(tx pgx.Tx) error { return st.run(ctx, tx) })
	var e *Error
	if err == nil || !errors.As(err, &e) || !e.RowFault() {
		return err
	}
	for _, i := range todo {
		results[i] = Settled{}
	}
	if len(todo) == 1 {
		results[todo[0]].Err = err
		return nil
	}
	half := len(todo) / 2
	if err := s.bisect(ctx, outcomes, todo[:half], results); err != nil {
		return err
	}
	return s.bisect(ctx, outcomes, todo[half:], results)
}

// settling is one settling transaction.
type settling struct {
	s        *Store
	outcomes []Outcome
	todo     []int
	results  []Settled
}

func (st *settling) run(ctx context.Context, tx pgx.Tx) error {
	for _, i := range st.todo {
		st.results[i] = Settled{} // the transaction may run again
	}
	st, err := st.unlessRevived(ctx, tx)
	if err != nil {
		return err
	}
	own, err := st.peel(ctx, tx)
	if err != nil {
		return err
	}
	requests, err := st.pass(ctx, tx, own)
	if err != nil || len(requests) == 0 {
		return err
	}
	passed := make([]int, 0, len(requests)) // in the order of todo
	for _, i := range st.todo {
		if st.results[i].Passed {
			passed = append(passed, i)
		}
	}
	if err := st.attempts(ctx, tx, passed, requests); err != nil {
		return err
	}
	if err := st.failures(ctx, tx, passed); err != nil {
		return err
	}
	if err := st.tellCancelled(ctx, tx, passed); err != nil {
		return err
	}
	return st.tally(ctx, tx, passed)
}

// peel makes a job of its own for each message that leaves its group: those that go on, and the failed ones, whose job
// cancels itself so that River's pages show them. It returns the jobs by message.
//
// It locks the messages that the group still owns first, and makes jobs for these alone. pass then writes the job with
// all else: a second update of each row would fill its page, and would no longer be HOT just when everything fails.
func (st *settling) peel(ctx context.Context, tx pgx.Tx) (map[int64]int64, error) {
	var ids, jobIDs []int64
	at := map[int64]int{}
	for _, i := range st.todo {
		if o := &st.outcomes[i]; !o.Own && o.Status != message.StatusDelivered {
			at[o.MessageID] = i
			ids, jobIDs = append(ids, o.MessageID), append(jobIDs, o.JobID)
		}
	}
	if len(ids) == 0 {
		return nil, nil //nolint:nilnil // a nil map is empty
	}
	owned, err := st.s.q.DeliveriesLock(ctx, tx, ids, jobIDs)
	if err != nil {
		return nil, fmt.Errorf("locking deliveries: %w", err)
	}
	jobs := make([]forwardJob, len(owned))
	for n, id := range owned {
		o := &st.outcomes[at[id]]
		jobs[n] = ownJob(id, o.Route, o.Key, o.Bytes, stamp(o.next()).Time)
	}
	made, err := st.s.insertJobs(ctx, tx, jobs)
	if err != nil {
		return nil, err
	}
	own := make(map[int64]int64, len(owned))
	for n, id := range owned {
		own[id] = made[n]
	}
	return own, nil
}

// pass is the fence: it changes the deliveries that the jobs own, notes which, and returns the requests made so far.
func (st *settling) pass(ctx context.Context, tx pgx.Tx, own map[int64]int64) (map[int64]int32, error) {
	p := storedb.DeliveriesSettleParams{}
	at := make(map[int64]int, len(st.todo))
	for _, i := range st.todo {
		o := &st.outcomes[i]
		at[o.MessageID] = i
		p.MessageIds = append(p.MessageIds, o.MessageID)
		p.JobIds = append(p.JobIds, o.JobID)
		p.NewJobIds = append(p.NewJobIds, own[o.MessageID])
		p.Statuses = append(p.Statuses, o.Status.String())
		p.Reasons = append(p.Reasons, o.Reason.String())
		p.Details = append(p.Details, message.Clean(o.Detail, maxText))
		p.Counted = append(p.Counted, o.Counted)
		p.Requested = append(p.Requested, o.Attempt != nil)
		a := o.attempt()
		p.HttpStatuses = append(p.HttpStatuses, int32Of(int64(a.HTTPStatus)))
		p.ErrorCodes = append(p.ErrorCodes, message.Clean(a.ErrorCode, maxCode))
		p.Errors = append(p.Errors, message.Clean(a.Error, maxText))
		p.NextAttemptAts = append(p.NextAttemptAts, stamp(o.next()))
	}
	rows, err := st.s.q.DeliveriesSettle(ctx, tx, p)
	if err != nil {
		return nil, fmt.Errorf("settling deliveries: %w", err)
	}
	requests := make(map[int64]int32, len(rows))
	for _, r := range rows {
		i := at[r.MessageID]
		st.results[i] = Settled{Passed: true, JobID: cmp.Or(own[r.MessageID], st.outcomes[i].JobID)}
		requests[r.MessageID] = r.Requests
	}
	for id := range own {
		if _, ok := requests[id]; !ok {
			return nil, fmt.Errorf("settling deliveries: message %d: %w", id, errUnlocked)
		}
	}
	return requests, nil
}

func ownJob(id int64, route, key string, bytes int64, at time.Time) forwardJob {
	return forwardJob{at: at, args: riverjobs.ForwardArgs{
		Route: route, IDs: []int64{id}, Key: message.NormalizeKey(key), Bytes: bytes, Own: true,
	}}
}

func (st *settling) attempts(ctx context.Context, tx pgx.Tx, passed []int, requests map[int64]int32) error {
	var p storedb.AttemptsInsertParams
	for _, i := range passed {
		o := &st.outcomes[i]
		if o.Attempt == nil {
			continue
		}
		a := o.attempt()
		p.MessageIds = append(p.MessageIds, o.MessageID)
		p.Attempts = append(p.Attempts, requests[o.MessageID])
		p.Counted = append(p.Counted, o.Counted)
		p.StartedAts = append(p.StartedAts, startedAt(a.StartedAt))
		p.DurationMss = append(p.DurationMss, int32Of(a.Duration.Milliseconds()))
		p.Verdicts = append(p.Verdicts, a.Verdict.String())
		p.HttpStatuses = append(p.HttpStatuses, int32Of(int64(a.HTTPStatus)))
		p.ErrorCodes = append(p.ErrorCodes, message.Clean(a.ErrorCode, maxCode))
		p.Errors = append(p.Errors, message.Clean(a.Error, maxText))
		p.Responses = append(p.Responses, message.Clean(a.Response, maxText))
		p.NextAttemptAts = append(p.NextAttemptAts, stamp(o.next()))
		p.Forwarders = append(p.Forwarders, message.Clean(o.Forwarder, maxText))
	}
	if len(p.MessageIds) == 0 {
		return nil
	}
	if err := st.s.q.AttemptsInsert(ctx, tx, p); err != nil {
		return fmt.Errorf("inserting attempts: %w", err)
	}
	return nil
}

func (st *settling) failures(ctx context.Context, tx pgx.Tx, passed []int) error {
	var ids, letters []int64
	for _, i := range passed {
		if o := &st.outcomes[i]; o.Status == message.StatusFailed {
			ids = append(ids, o.MessageID)
			if _, has := st.s.cfg.DeadLetters[o.Route]; has {
				letters = append(letters, o.MessageID)
			}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	if err := st.s.q.FailuresInsert(ctx, tx, ids); err != nil {
		return fmt.Errorf("inserting failures: %w", err)
	}
	return st.s.deadLetter(ctx, tx, letters)
}

type tallyKey struct {
	slot  int16
	route string
}

// tally is what is added to a route's sums.
type tally struct{ delivered, failed int64 }

// tallies are the additions of one transaction.
type tallies map[tallyKey]tally

func (t tallies) add(forwarder, route string, n tally) {
	k := tallyKey{slot(forwarder), route}
	was := t[k]
	t[k] = tally{was.delivered + n.delivered, was.failed + n.failed}
}

// tallySlots is how many rows a route's sums are spread over.
const tallySlots = 16

func (st *settling) tally(ctx context.Context, tx pgx.Tx, passed []int) error {
	sums := tallies{}
	for _, i := range passed {
		switch o := &st.outcomes[i]; o.Status {
		case message.StatusDelivered:
			sums.add(o.Forwarder, o.Route, tally{delivered: 1})
		case message.StatusFailed:
			sums.add(o.Forwarder, o.Route, tally{failed: 1})
		case message.StatusPending:
		}
	}
	return st.s.addTallies(ctx, tx, sums)
}

// addTallies adds to the sums. Its rows are the ones that every forwarder writes: they are locked from here to the commit,
// which comes at once.
func (s *Store) addTallies(ctx context.Context, tx pgx.Tx, sums tallies) error {
	if len(sums) == 0 {
		return nil
	}
	var p storedb.TalliesAddParams
	for _, k := range slices.SortedFunc(maps.Keys(sums), func(a, b tallyKey) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.route, b.route))
	}) {
		p.Slots, p.Routes = append(p.Slots, k.slot), append(p.Routes, k.route)
		p.Delivered, p.Failed = append(p.Delivered, sums[k].delivered), append(p.Failed, sums[k].failed)
	}
	if err := s.q.TalliesAdd(ctx, tx, p); err != nil {
		return fmt.Errorf("adding to the tallies: %w", err)
	}
	return nil
}

func slot(forwarder string) int16 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(forwarder))
	return int16(h.Sum32() % tallySlots)
}

// attempt returns the attempt, an empty one when no request was made.
func (o *Outcome) attempt() *message.Attempt {
	if o.Attempt == nil {
		return &message.Attempt{}
	}
	return o.Attempt
}

// next returns when the message is tried next, the zero time for never.
func (o *Outcome) next() time.Time {
	if o.Status != message.StatusPending {
		return time.Time{}
	}
	return o.NextAttemptAt
}
