package forwarder

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/store"
)

// auditCommand compares what was read with what is there.
func auditCommand() *cobra.Command {
	var since string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "audit [--json] [--since T]",
		Short: "Prove that no message is missing: compare what was read with what is there (exit code 1 if anything is wrong)",
		Args:  app.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := app.When("--since", since, time.Now())
			if err != nil {
				return app.Usage(err)
			}
			return ask(cmd, func(ctx context.Context, a *asking) error {
				return (&audit{asking: a, since: from, asJSON: asJSON, out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr()}).run(ctx)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().StringVar(&since, "since", "", "count no rows, and look only at messages received since then one by one: "+app.WhenForms)
	return cmd
}

// audit is one run of the command.
type audit struct {
	*asking
	since      time.Time
	asJSON     bool
	out, notes io.Writer

	found *store.Audit
	kafka kafkaState
	// committed is what the groups committed, by position; nil where Kafka was not asked.
	committed map[place]int64
	findings  []string
}

// run judges and prints. What could be found out is printed also when Kafka could not be asked.
func (a *audit) run(ctx context.Context) error {
	var err error
	if a.found, err = a.store.Audit(ctx, a.since); err != nil {
		return unknown(ctx, err)
	}
	a.findings = auditFindings(a.found, a.file)
	away := a.askKafka(ctx)
	if err := a.print(); err != nil {
		return app.Unknown(fmt.Errorf("printing: %w", err))
	}
	switch {
	case away != nil:
		return unknown(ctx, away)
	case len(a.findings) > 0:
		return &app.ExitError{Code: app.CodeFinding} // they are printed
	}
	return nil
}

// unknown says why nothing was found out. A signal is a reason as well: that nothing was found must not look as if there
// were nothing to find.
func unknown(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return app.Unknown(errInterrupted)
	}
	return app.Unknown(err)
}

// ok says whether everything was looked at and nothing was found.
func (a *audit) ok() bool { return len(a.findings) == 0 && a.kafka != kafkaAway }

// everStored is how many messages there ever were.
func everStored(found *store.Audit) int64 {
	var n int64
	for _, r := range found.Routes {
		n += r.Stored
	}
	return n
}

// auditFindings returns what is wrong, a line each.
func auditFindings(found *store.Audit, file *route.File) []string {
	j := &judging{found: found, file: file}
	j.routes()
	j.partitions()
	j.damage()
	j.waiting()
	j.expired()
	return j.findings
}
