package ingester

import (
	"context"

	"github.com/ferry-forward/ferry/internal/admin"
	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/config"
	"github.com/ferry-forward/ferry/internal/ingest"
	"github.com/ferry-forward/ferry/internal/kafka"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/store"
)

// extraConns are the database connections beside the writers': one for positions, one for the watch.
const extraConns = 2

// start starts what takes records in, and registers every stop on s.Life.
func start(ctx context.Context, cfg *config.Ingester, s *app.Setup) error {
	conns := cfg.DatabaseMaxConns
	if conns == 0 {
		conns = cfg.Writers + extraConns
	}
	st, err := s.OpenStore(ctx, &cfg.Common, store.Config{JobSizes: jobSizes(s.Routes), MaxConns: conns, AppName: "ferry-ingester"})
	if err != nil {
		return err
	}
	check := func(ctx context.Context) error {
		if err := st.CheckSchema(ctx); err != nil {
			return err
		}
		return st.CheckDurability(ctx)
	}
	// Without a database there is no position to read from, and nothing to do in the group.
	s.Parts.Set(admin.Kafka, false, "waiting for the database")
	s.Parts.Set(admin.Topics, false, "waiting for the database")
	var installation string
	if err := s.AwaitDatabase(ctx, func(ctx context.Context) error {
		err := check(ctx)
		if err == nil {
			installation, err = st.Installation(ctx)
		}
		return err
	}); err != nil {
		return err
	}
	s.WatchDatabase(ctx, check)
	return startIngest(ctx, cfg, s, st, installation)
}

func jobSizes(file *route.File) map[string]int {
	sizes := make(map[string]int, len(file.Routes))
	for _, r := range file.Routes {
		sizes[r.Name] = r.JobSize
	}
	return sizes
}

func startIngest(ctx context.Context, cfg *config.Ingester, s *app.Setup, st *store.Store, installation string) error {
	settings, err := kafkaConfig(cfg)
	if err != nil {
		return app.Usage(err)
	}
	settings.Logger = s.Log.Logger
	s.Parts.Set(admin.Kafka, false, "connecting")
	s.Parts.Set(admin.Topics, false, "looking for the topics")
	// The reports of ingest take the place of these two; its word on the database comes beside the watch's.
	reporter := map[admin.Part]string{admin.Database: "ingest"}
	ingester := ingest.New(ingest.Config{
		Group: cfg.KafkaGroup, Installation: installation, Routes: s.Routes.Routes,
		BatchSize: cfg.BatchSize, BatchBytes: int(cfg.BatchBytes), BatchLinger: cfg.BatchLinger, Writers: cfg.Writers,
		BufferBytes: int(cfg.BufferBytes),
		// What is left of the time is for what stops after it.
		ShutdownTimeout: cfg.ShutdownTimeout * 9 / 10,
		Saver:           st, Metrics: s.Metrics, Logger: s.Log.Logger,
		Ready: func(name string, ok bool, why string) {
			part := admin.Part(name)
			s.Parts.Report(part, reporter[part], ok, why)
		},
	})
	consumer, err := kafka.New(settings, ingester)
	if err != nil {
		return app.Usage(err)
	}
	s.Life.Go(ctx, "ingest", cfg.ShutdownTimeout, func(ctx context.Context) error { return ingester.Run(ctx, consumer) })
	s.Log.Info("reading", "topics", s.Routes.TopicsRead(), "group", cfg.KafkaGroup)
	return nil
}
