package forwarder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
)

// replaying is one run of the command.
type replaying struct {
	*asking

	flags *replayFlags
	in    io.Reader
	out   io.Writer // the result
	notes io.Writer // questions, progress, and what is to be known besides

	matched, replayed int64
}

// plan is what is to be replayed, and how a part of it is done.
type plan struct {
	routes map[string]int64 // how many of which route
	sample []int64          // some of them
	step   func(ctx context.Context, limit int) (replayed int, finished bool, err error)
	begin  func(ctx context.Context) error // before the first step
	goOn   string                          // how an interrupted one goes on
}

func (r *replaying) run(ctx context.Context) error {
	for _, name := range r.flags.routes {
		if r.file.Route(name) == nil {
			return app.Usage(fmt.Errorf("--route: there is no route %q in %s, so that nobody would send its messages; it has %s",
				name, r.cfg.Routes, strings.Join(r.file.Names(), ", ")))
		}
	}
	look := r.byFilter
	if r.flags.byName() {
		look = r.byName
	}
	p, err := look(ctx)
	if err != nil {
		return r.ended(ctx, err)
	}
	for _, n := range p.routes {
		r.matched += n
	}
	if r.flags.dryRun {
		return r.ended(ctx, r.show(ctx, p))
	}
	if r.matched > 0 && !r.flags.yes {
		yes, err := r.confirm(ctx, p)
		if err != nil {
			return err
		}
		if !yes {
			r.note("nothing was replayed")
			return nil
		}
	}
	return r.work(ctx, p)
}

// ended returns the error of a question to the database; that somebody ended the command is none.
func (r *replaying) ended(ctx context.Context, err error) error {
	var decided *app.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		r.note("stopped: nothing was replayed")
		return context.Cause(ctx)
	case errors.As(err, &decided):
		return err
	}
	return app.Unknown(err)
}

func (r *replaying) note(format string, args ...any) {
	_, _ = fmt.Fprintf(r.notes, format+"\n", args...)
}

// byFilter counts what the filter matches, or what an interrupted replay of it has left.
func (r *replaying) byFilter(ctx context.Context) (*plan, error) {
	text := r.flags.text()
	var unfinished *store.Replay
	if !r.flags.restart {
		var err error
		if unfinished, err = r.store.UnfinishedReplay(ctx, text); err != nil {
			return nil, err
		}
	}
	var now time.Time
	if unfinished != nil {
		now = unfinished.StartedAt
		r.note("this replay was begun at %s and not finished, %d messages are done: it goes on behind them (--restart begins anew)",
			clock(now), unfinished.Replayed)
	} else {
		var err error
		if now, err = r.store.Now(ctx); err != nil {
			return nil, err
		}
	}
	left, err := r.count(ctx, now, unfinished)
	if err != nil {
		return nil, err
	}
	var id int64
	var sel *store.ReplaySelection
	p := &plan{routes: left.Routes, sample: left.Newest, goOn: "run the same again within 24 hours, and it goes on behind them"}
	p.begin = func(ctx context.Context) error {
		begun, err := r.store.BeginReplay(ctx, text, r.flags.restart)
		if err != nil {
			return err
		}
		id = begun.ID
		sel, err = r.selection(ctx, begun.StartedAt)
		return err
	}
	p.step = func(ctx context.Context, limit int) (int, bool, error) {
		step, err := r.store.StepReplay(ctx, id, sel, limit)
		if step.Gone {
			r.note("another process has ended this replay: it finished it, or began anew")
		}
		return step.Replayed, step.Finished, err
	}
	if unfinished == nil && left.Matched() == 0 {
		p.begin, p.step = nothing, func(context.Context, int) (int, bool, error) { return 0, true, nil }
	}
	return p, nil
}

func nothing(context.Context) error { return nil }

func (r *replaying) selection(ctx context.Context, now time.Time) (*store.ReplaySelection, error) {
	f, err := r.flags.filter(r.file, now)
	if err != nil {
		return nil, app.Usage(err)
	}
	return r.store.SelectReplay(ctx, f)
}

// count counts what is to be replayed, and says what is left out.
func (r *replaying) count(ctx context.Context, now time.Time, unfinished *store.Replay) (*store.ReplayCount, error) {
	sel, err := r.selection(ctx, now)
	if err != nil {
		return nil, err
	}
	left, err := r.store.CountReplay(ctx, sel, unfinished)
	if err != nil {
		return nil, err
	}
	if left.Unstorable > 0 {
		r.note("left out: %s of reason unstorable: %s; forwarder list --reason unstorable says where they are in Kafka, and "+
			"ingester reread reads them again", count(left.Unstorable, "message"), unstorable)
	}
	if len(r.flags.routes) > 0 {
		return left, nil
	}
	return left, r.countUnknown(ctx, now, unfinished)
}

// countUnknown says how many messages are left out because the route file does not have their route.
func (r *replaying) countUnknown(ctx context.Context, now time.Time, unfinished *store.Replay) error {
	stored, err := r.store.RoutesStored(ctx)
	if err != nil {
		return err
	}
	f, err := r.flags.filter(r.file, now)
	if err != nil {
		return app.Usage(err)
	}
	known := f.Routes
	f.Routes = slices.DeleteFunc(stored, func(name string) bool { return slices.Contains(known, name) })
	if len(f.Routes) == 0 {
		return nil
	}
	sel, err := r.store.SelectReplay(ctx, f)
	if err != nil {
		return err
	}
	left, err := r.store.CountReplay(ctx, sel, unfinished)
	if err != nil {
		return err
	}
	if n := left.Matched(); n > 0 {
		r.note("left out: %s of routes that are not in %s, so that nobody would send them: %s",
			count(n, "message"), r.cfg.Routes, byRoute(left.Routes))
	}
	return nil
}

// byName looks at the messages that are named. One that can't be replayed keeps all of them from it.
func (r *replaying) byName(ctx context.Context) (*plan, error) {
	p := &plan{routes: map[string]int64{}, begin: nothing, goOn: "what was not replayed can be asked for again"}
	only := strings.Join(r.flags.routes, "")
	var refused []string
	seen := map[int64]bool{}
	for _, word := range r.flags.words {
		found, err := r.find(ctx, word, only, "forwarder replay")
		if err != nil {
			return nil, err
		}
		if seen[found.ID] {
			continue
		}
		seen[found.ID] = true
		why, err := r.refusal(ctx, found)
		switch {
		case err != nil:
			return nil, err
		case why != "":
			refused = append(refused, fmt.Sprintf("message id:%d (route %s, key %q) %s", found.ID, found.Route, found.Key, why))
		default:
			p.routes[found.Route]++
			p.sample = append(p.sample, found.ID)
		}
	}
	if len(refused) > 0 {
		return nil, app.Finding(fmt.Errorf("%s; nothing was replayed", strings.Join(refused, "; ")))
	}
	slices.Sort(p.sample)
	left := p.sample
	p.step = func(ctx context.Context, limit int) (int, bool, error) {
		now := left[:min(limit, len(left))]
		done, err := r.store.ReplayMessages(ctx, now, store.ReplayFilter{Status: message.Status(r.flags.status), NewKey: r.flags.newKey})
		if err != nil {
			return 0, false, err
		}
		for _, id := range now {
			if !slices.Contains(done, id) {
				r.note("message id:%d was not replayed: somebody else did something with it just now; forwarder show id:%d tells", id, id)
			}
		}
		left = left[len(now):]
		return len(done), len(left) == 0, nil
	}
	return p, nil
}

// refusal says why a message can't be replayed; empty when it can.
func (r *replaying) refusal(ctx context.Context, m *store.Found) (string, error) {
	switch {
	case r.file.Route(m.Route) == nil:
		return fmt.Sprintf("is of a route that is not in %s, so that nobody would send it", r.cfg.Routes), nil
	case m.Reason == message.Unstorable:
		return fmt.Sprintf("is unstorable: %s; ingester reread --topic %s --partition %d --from %d --to %d reads it again", unstorable,
			m.Position.Topic, m.Position.Partition, m.Position.Offset, m.Position.Offset+1), nil
	case m.Status == "":
		return "has no state any more (its row in ferry.deliveries is gone); forwarder audit says what is damaged", nil
	case m.Status == message.StatusPending:
		return r.pending(ctx, m.ID)
	case m.Status == message.StatusDelivered && m.Status.String() != r.flags.status:
		return fmt.Sprintf("was delivered at %s; add --status delivered to send it again nonetheless", clock(m.SettledAt)), nil
	case m.Status.String() != r.flags.status:
		return fmt.Sprintf("is %s, and --status says %s; leave it out", m.Status, r.flags.status), nil
	}
	return "", nil
}

// pending says what a pending message waits for.
func (r *replaying) pending(ctx context.Context, id int64) (string, error) {
	why, err := r.store.WhyPending(ctx, id)
	if err != nil {
		return "", err
	}
	if why == nil {
		return "was pending just now, and is not any more; run the same again", nil
	}
	switch why.JobState {
	case "running":
		return fmt.Sprintf("is in flight: job %d works on it now, and what comes of that is recorded by itself", why.JobID), nil
	case "scheduled", "retryable":
		return fmt.Sprintf("is pending: it goes out by itself at %s; Retry of job %d in River UI sends it now", clock(why.At), why.JobID), nil
	case "available", "pending":
		return fmt.Sprintf("is pending: it goes out by itself as soon as its route has room for it (job %d)", why.JobID), nil
	}
	return "is pending without a live job: reconcile gives it one within a minute", nil
}

// show says what a dry run found.
func (r *replaying) show(ctx context.Context, p *plan) error {
	if r.flags.json {
		return r.result()
	}
	_, _ = fmt.Fprintf(r.out, "%s: nothing was changed\n", r.would(p))
	if len(p.sample) == 0 {
		return nil
	}
	slices.Reverse(p.sample)
	sample := p.sample[:min(len(p.sample), store.ReplaySamples)]
	if int64(len(sample)) < r.matched {
		_, _ = fmt.Fprintf(r.out, "\nthe newest %d:\n", len(sample))
	} else {
		_, _ = fmt.Fprintln(r.out)
	}
	t := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "ID\tROUTE\tKEY\tRECEIVED\tSTATUS\tREASON\tSETTLED")
	for _, id := range sample {
		found, err := r.store.Find(ctx, message.Ref{ID: id}, "")
		if err != nil {
			return err
		}
		for _, m := range found {
			_, _ = fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", m.ID, m.Route, printable(m.Key), clock(m.ReceivedAt), m.Status,
				dash(m.Reason.String()), clock(m.SettledAt))
		}
	}
	return printed(t.Flush())
}

// those says how many messages of the status there are.
func (r *replaying) those(n int64) string { return count(n, r.flags.status+" message") }

func (r *replaying) would(p *plan) string {
	if r.matched == 0 {
		return "no " + r.flags.status + " message matches"
	}
	return fmt.Sprintf("would replay %s (%s)", r.those(r.matched), byRoute(p.routes))
}

// result prints what --json is for.
func (r *replaying) result() error {
	b, err := json.Marshal(struct {
		Matched  int64 `json:"matched"`
		Replayed int64 `json:"replayed"`
	}{r.matched, r.replayed})
	if err == nil {
		_, err = fmt.Fprintf(r.out, "%s\n", b)
	}
	return printed(err)
}

func printed(err error) error {
	if err != nil {
		return app.Unknown(fmt.Errorf("printing: %w", err))
	}
	return nil
}

func byRoute(routes map[string]int64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(routes)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, routes[name]))
	}
	return strings.Join(parts, ", ")
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// printable is a key that can't disturb a table or a terminal.
func printable(key string) string {
	quoted := fmt.Sprintf("%q", key)
	if quoted == `"`+key+`"` && key != "" && !strings.Contains(key, " ") {
		return key
	}
	return quoted
}
