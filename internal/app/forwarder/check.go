package forwarder

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/trial"
)

func checkCommand() *cobra.Command {
	var tests []string
	cmd := &cobra.Command{
		Use:   "check [--tests FILE]",
		Short: "Check settings and route file and say what would run, or run test cases of the route file, without touching anything",
		Args:  app.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(tests) > 0 {
				return checkTests(cmd, tests)
			}
			return check(cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringArrayVar(&tests, "tests", nil,
		"a file of test cases, which are run instead; may be given several times. Needs the route file alone (FERRY_ROUTES)")
	return cmd
}

// check says what would run.
func check(out, warnings io.Writer) error {
	cfg, file, err := load()
	found := app.Checked{Settings: cfg, Routes: file, Err: err}
	if err == nil {
		job, rescue := times(file)
		found.More = fmt.Sprintf("\nworked here: %s\n%s\na job may run for %s; one that runs after %s is taken to be lost and run again\n",
			strings.Join(names(worked(cfg, file)), ", "), deadLettersHere(cfg, file), job, rescue)
		found.Warnings = kafkaWarnings(cfg, file)
	}
	return app.WriteCheck(out, warnings, found)
}

// checkTests runs files of test cases. Each has variables of its own, so that the route file is read for each.
func checkTests(cmd *cobra.Command, paths []string) error {
	sum := &trial.Tally{}
	for _, path := range paths {
		cases, err := route.LoadCases(path)
		if err != nil {
			return app.Usage(err)
		}
		file, err := app.LoadRouteFile(cases.Lookup(os.LookupEnv))
		if err != nil {
			return app.Usage(err)
		}
		file.Reveal(cases.Names()...)
		if err := cases.Check(file); err != nil {
			return app.Usage(err)
		}
		sum.Add(trial.Run(cmd.Context(), file, cases, app.BuildVersion("forwarder").Version))
	}
	var b strings.Builder
	for _, f := range sum.Failures {
		b.WriteString(f.String() + "\n")
	}
	b.WriteString(sum.String() + "\n")
	if _, err := io.WriteString(cmd.OutOrStdout(), b.String()); err != nil {
		return app.Unknown(fmt.Errorf("printing: %w", err))
	}
	if len(sum.Failures) > 0 {
		return &app.ExitError{Code: app.CodeFinding}
	}
	return nil
}
