package forwarder

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferry-forward/ferry/internal/admin"
	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/config"
	"github.com/ferry-forward/ferry/internal/route"
)

// Command returns the forwarder's command line.
func Command() *cobra.Command {
	root := app.NewRoot("forwarder", "Sends stored messages to their HTTP destinations", config.Forwarder{})
	root.AddCommand(
		&cobra.Command{
			Use: "run", Short: "Send messages until SIGTERM; settings come from the environment", Args: app.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd) },
		},
		checkCommand(),
		migrateCommand(),
		showCommand(),
		listCommand(),
		replayCommand(),
		auditCommand(),
		tryCommand(),
	)
	return root
}

func load() (*config.Forwarder, *route.File, error) {
	common := func(c *config.Forwarder) *config.Common { return &c.Common }
	return app.Load(config.LoadForwarder, common, func(c *config.Forwarder, file *route.File) []string {
		if file == nil {
			return nil
		}
		var faults []string
		for _, name := range c.RouteNames {
			if file.Route(name) == nil {
				faults = append(faults, fmt.Sprintf("FERRY_ROUTE_NAMES: there is no route %q in %s; it has %s",
					name, c.Routes, strings.Join(file.Names(), ", ")))
			}
		}
		return append(faults, kafkaFaults(c, file)...)
	})
}

// run runs the forwarder until its context ends or it can't go on.
func run(cmd *cobra.Command) error {
	cfg, file, err := load()
	if err != nil {
		return app.Usage(err)
	}
	ctx := cmd.Context()
	s, err := app.Start(ctx, app.SetupOptions{
		Binary: "forwarder", Common: &cfg.Common, AdminAddr: cfg.AdminAddr, Routes: file, Stderr: cmd.ErrOrStderr(),
		Parts: []admin.Part{admin.Database, admin.Schema},
	})
	if err != nil {
		return err
	}
	for _, line := range kafkaWarnings(cfg, file) {
		s.Log.Warn(line)
	}
	s.Metrics.ServeForward()
	// What River and the settling need after the requests' own time.
	limit := cfg.ShutdownTimeout + stopReserve
	if err := Start(ctx, cfg, s); err != nil {
		s.Stop(ctx, limit)
		return err
	}
	return s.Finish(ctx, limit)
}
