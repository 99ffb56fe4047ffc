package ingester

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferry-forward/ferry/internal/admin"
	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/config"
	"github.com/ferry-forward/ferry/internal/kafka"
	"github.com/ferry-forward/ferry/internal/route"
)

// Command returns the ingester's command line.
func Command() *cobra.Command {
	root := app.NewRoot("ingester", "Stores what Kafka has for the routes, with a job for the forwarder", config.Ingester{})
	root.AddCommand(
		&cobra.Command{
			Use: "run", Short: "Store records until SIGTERM; settings come from the environment", Args: app.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd) },
		},
		&cobra.Command{
			Use: "check", Short: "Check settings and route file and say what would run, without touching anything", Args: app.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				cfg, file, err := load()
				found := app.Checked{Settings: cfg, Routes: file, Err: err}
				if err == nil {
					found.Warnings = kafkaWarnings(cfg)
					found.More = fmt.Sprintf("\nreads %s as group %s\n", file.TopicsRead(), cfg.KafkaGroup)
				}
				return app.WriteCheck(cmd.OutOrStdout(), cmd.ErrOrStderr(), found)
			},
		},
		skipCommand(),
		rereadCommand(),
	)
	return root
}

func load() (*config.Ingester, *route.File, error) {
	common := func(c *config.Ingester) *config.Common { return &c.Common }
	return app.Load(config.LoadIngester, common, func(c *config.Ingester, _ *route.File) []string {
		settings, err := kafkaConfig(c)
		if err == nil {
			err = kafka.Check(settings)
		}
		if err == nil {
			return nil
		}
		var faults []string
		for line := range strings.Lines(err.Error()) {
			faults = append(faults, "FERRY_KAFKA_CONFIG: "+strings.TrimSpace(line))
		}
		return faults
	})
}

// kafkaConfig is what the settings say about Kafka.
func kafkaConfig(c *config.Ingester) (kafka.Config, error) {
	properties, err := kafka.Properties(c.KafkaConfig.Reveal())
	if err != nil {
		return kafka.Config{}, err
	}
	return kafka.Config{Brokers: c.KafkaBrokers, Group: c.KafkaGroup, Properties: properties}, nil
}

// kafkaWarnings says what looks odd in settings that were checked.
func kafkaWarnings(c *config.Ingester) []string {
	settings, err := kafkaConfig(c)
	if err != nil {
		return nil
	}
	return kafka.Warnings(settings)
}

// run runs the ingester until its context ends or it can't go on.
func run(cmd *cobra.Command) error {
	cfg, file, err := load()
	if err != nil {
		return app.Usage(err)
	}
	ctx := cmd.Context()
	s, err := app.Start(ctx, app.SetupOptions{
		Binary: "ingester", Common: &cfg.Common, AdminAddr: cfg.AdminAddr, Routes: file, Stderr: cmd.ErrOrStderr(),
		Parts: []admin.Part{admin.Database, admin.Schema, admin.Kafka, admin.Topics},
	})
	if err != nil {
		return err
	}
	for _, line := range kafkaWarnings(cfg) {
		s.Log.Warn(line)
	}
	s.Metrics.ServeIngest()
	if err := start(ctx, cfg, s); err != nil {
		s.Stop(ctx, cfg.ShutdownTimeout)
		return err
	}
	return s.Finish(ctx, cfg.ShutdownTimeout)
}
