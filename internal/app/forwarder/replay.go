package forwarder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/store"
)

// replayFlags is what the command line of replay says.
type replayFlags struct {
	words           []string // key:K, id:N or either
	keys            []string
	routes, reasons []string
	status          string
	since, until    string
	rate            float64 // messages a second; 0: as fast as it goes

	dryRun, yes, json, newKey, restart bool
}

// replayCommand makes messages pending again, so that they are sent.
func replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay [KEY|ID …] [--route R] [--status failed|delivered] [--since T] [--until T] [--reason R]",
		Short: "Send messages again: failed ones unless told otherwise",
		Long: "Send messages again, by key or id, or all that a filter matches: failed ones unless told otherwise.\n" +
			"Their attempts begin anew. A replay by filter that was interrupted goes on when the same is typed again.",
		RunE: func(cmd *cobra.Command, args []string) error {
			f.words = args
			if err := f.check(); err != nil {
				return app.Usage(err)
			}
			if !f.dryRun && !f.yes && !app.IsTerminal(cmd.InOrStdin()) {
				return app.Usage(errors.New("replay asks before it sends anything again, and here is nobody to ask: add --yes, or --dry-run to see what it would do"))
			}
			return ask(cmd, func(ctx context.Context, a *asking) error {
				r := &replaying{asking: a, flags: &f, in: cmd.InOrStdin(), out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr()}
				return r.run(ctx)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.keys, "key", nil, "the message with this key; the same as key:K")
	flags.StringArrayVar(&f.routes, "route", nil, "of this route; several may be given")
	flags.StringVar(&f.status, "status", "", "failed (the default) or delivered")
	flags.StringVar(&f.since, "since", "", "received since "+app.WhenForms)
	flags.StringVar(&f.until, "until", "", "received before: as --since")
	flags.StringArrayVar(&f.reasons, "reason", nil, "failed for this reason; several may be given")
	flags.BoolVar(&f.dryRun, "dry-run", false, "count them, show some, and change nothing")
	flags.BoolVar(&f.yes, "yes", false, "do not ask")
	flags.BoolVar(&f.json, "json", false, "print one object: {matched, replayed}")
	flags.BoolVar(&f.newKey, "new-key", false, "with a new Idempotency-Key, for receivers that would answer without acting")
	flags.Float64Var(&f.rate, "rate", 0, "make at most this many messages a second pending; 0: no limit")
	flags.BoolVar(&f.restart, "restart", false, "begin anew, although the same replay was interrupted")
	return cmd
}

// byName says whether single messages are named.
func (f *replayFlags) byName() bool { return len(f.words)+len(f.keys) > 0 }

// check tells what is wrong with the flags as far as that shows without the database, and puts them in order.
func (f *replayFlags) check() error {
	for _, key := range f.keys {
		f.words = append(f.words, "key:"+key)
	}
	f.keys = nil
	f.routes, f.reasons = ordered(f.routes), ordered(f.reasons)
	filtered := len(f.routes)+len(f.reasons) > 0 || f.status != "" || f.since != "" || f.until != ""
	switch message.Status(f.status) {
	case "":
		f.status = message.StatusFailed.String()
	case message.StatusFailed:
	case message.StatusDelivered:
		if len(f.reasons) > 0 {
			return errors.New("--reason is of failed messages, and --status delivered asks for others: leave one of them out")
		}
		if !f.byName() && len(f.routes) == 0 && f.since == "" && f.until == "" {
			return errors.New("--status delivered alone would send everything again that was ever delivered: add --route, --since or --until")
		}
	case message.StatusPending:
		return errors.New("--status pending: what is pending goes out by itself; give failed or delivered")
	default:
		return fmt.Errorf("--status: %q is no status to replay; give failed or delivered", f.status)
	}
	if err := f.checkReasons(); err != nil {
		return err
	}
	if f.rate < 0 {
		return errors.New("--rate: give a number of messages a second above 0, or 0 for no limit")
	}
	now := time.Now()
	since, until, err := f.times(now)
	switch {
	case err != nil:
		return err
	case !since.IsZero() && !until.IsZero() && !since.Before(until):
		return fmt.Errorf("--since %s is not before --until %s: nothing lies between them", f.since, f.until)
	case f.byName() && (f.since != "" || f.until != "" || len(f.reasons) > 0 || f.restart || len(f.routes) > 1):
		return errors.New("with KEY or ID give no filter but --status and one --route: the messages are named already")
	case !f.byName() && !filtered:
		return errors.New("replay must be told what: KEY or ID, or at least one of --route, --status, --since, --until, --reason; " +
			"with --dry-run it says what they match and changes nothing")
	}
	return nil
}

func (f *replayFlags) checkReasons() error {
	for _, r := range f.reasons {
		switch {
		case message.Reason(r) == message.Unstorable:
			return errors.New("--reason unstorable: " + unstorable + "; forwarder list --reason unstorable says where they are in Kafka, " +
				"and ingester reread --topic T --partition P --from N --to N+1 reads one again")
		case !slices.Contains(message.Reasons(), message.Reason(r)):
			return fmt.Errorf("--reason: %q is no reason; there are %s", r, reasonNames())
		}
	}
	return nil
}

const unstorable = "what the database refused is not in it as it came, so that it can't be sent"

func reasonNames() string {
	var names []string
	for _, r := range message.Reasons() {
		names = append(names, r.String())
	}
	return strings.Join(names, ", ")
}

// times reads --since and --until, of which a time ago is before now.
func (f *replayFlags) times(now time.Time) (since, until time.Time, err error) {
	if since, err = app.When("--since", f.since, now); err != nil {
		return since, until, err
	}
	until, err = app.When("--until", f.until, now)
	return since, until, err
}

// text is the filter as replays keeps it: the flags as they were typed, in one order. Times ago stay so, that the same
// typed again later is the same replay.
func (f *replayFlags) text() string {
	var parts []string
	for _, r := range f.routes {
		parts = append(parts, "--route "+r)
	}
	parts = append(parts, "--status "+f.status)
	for _, r := range f.reasons {
		parts = append(parts, "--reason "+r)
	}
	if f.since != "" {
		parts = append(parts, "--since "+f.since)
	}
	if f.until != "" {
		parts = append(parts, "--until "+f.until)
	}
	if f.newKey {
		parts = append(parts, "--new-key")
	}
	return strings.Join(parts, " ")
}

// filter is what the store is asked for, with times before now.
func (f *replayFlags) filter(file *route.File, now time.Time) (store.ReplayFilter, error) {
	out := store.ReplayFilter{Status: message.Status(f.status), Routes: f.routes, NewKey: f.newKey}
	if len(f.routes) == 0 {
		out.Routes = ordered(file.Names())
	}
	for _, r := range f.reasons {
		out.Reasons = append(out.Reasons, message.Reason(r))
	}
	var err error
	out.Since, out.Until, err = f.times(now)
	return out, err
}

// ordered returns the words in order, each once.
func ordered(words []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(words)))
}
