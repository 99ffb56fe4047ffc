package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/ferry-forward/ferry/internal/admin"
	"github.com/ferry-forward/ferry/internal/config"
	"github.com/ferry-forward/ferry/internal/observe"
	"github.com/ferry-forward/ferry/internal/route"
)

// Setup is what a process has before its own parts start.
type Setup struct {
	Log     *observe.Log
	Metrics *observe.Metrics
	Parts   *admin.Parts
	Life    *Lifecycle
	Routes  *route.File
	Version admin.Version
	// Addr is where the admin port is served.
	Addr string
}

// SetupOptions are what a set-up is made from.
type SetupOptions struct {
	Binary    string
	Common    *config.Common
	AdminAddr string
	Routes    *route.File
	Parts     []admin.Part // what must be there for the process to be ready
	Stderr    io.Writer    // where the log goes
}

// adminStop bounds how long scrapes in flight hold up the end of a process.
const adminStop = 2 * time.Second

// Start starts what comes first in both binaries: the log, the metrics and the admin port, which is served, not ready
// yet, before anything else starts. Its errors are wrong use. Whoever has a Setup calls Stop on its Life.
func Start(ctx context.Context, o SetupOptions) (*Setup, error) {
	log, err := observe.NewLog(o.Stderr, observe.LogOptions{
		Level: o.Common.LogLevel, Format: o.Common.LogFormat, Redact: o.Routes.Redact,
	})
	if err != nil {
		return nil, Usage(err)
	}
	s := &Setup{Log: log, Routes: o.Routes, Version: BuildVersion(o.Binary), Life: NewLifecycle(log.Plain())}
	s.Life.Add("log", time.Second, func(context.Context) error {
		log.Flush()
		return nil
	})
	s.Metrics = observe.NewMetrics(observe.MetricsOptions{
		Version: s.Version.Version, Commit: s.Version.Commit, Routes: o.Routes.Names(), Topics: o.Routes.Topics(),
		DeadLetters: slices.Sorted(maps.Keys(o.Routes.DeadLetters())),
	})
	s.Parts = admin.NewParts(func(part admin.Part, state admin.State) {
		if state.OK {
			log.Plain().Info("ready", "part", string(part))
		} else {
			log.Plain().Warn("not ready", "part", string(part), "why", state.Why)
		}
	}, append([]admin.Part{admin.Routes}, o.Parts...)...)
	server, err := admin.Listen(ctx, admin.Options{
		Addr: o.AdminAddr, Parts: s.Parts, Metrics: s.Metrics.Handler(), Version: s.Version, Logger: log.Logger,
	})
	if err != nil {
		return nil, Usage(fmt.Errorf("%w; end the process that has it, or set FERRY_ADMIN_ADDR", err))
	}
	s.Life.Add("admin port", adminStop, server.Stop)
	s.Addr = server.Addr()
	s.Parts.Set(admin.Routes, true, "")
	for _, line := range Warnings(o.Routes) {
		log.Warn(line)
	}
	log.Info("started", "binary", o.Binary, "version", s.Version.Version, "admin", s.Addr, "routes", o.Routes.Names())
	return s, nil
}

// errShutdownTimeout is the cause when a whole stop takes too long.
var errShutdownTimeout = errors.New("FERRY_SHUTDOWN_TIMEOUT passed")

// Finish waits until ctx is done or a part fails, then stops everything within limit, and returns what failed, as a
// finding unless the part decided otherwise. A stop that was cut off is only warned about: nothing is lost by it, and the end was asked for.
func (s *Setup) Finish(ctx context.Context, limit time.Duration) error {
	err := s.Life.Wait(ctx)
	s.Stop(ctx, limit)
	var decided *ExitError
	if err == nil || errors.As(err, &decided) {
		return err
	}
	return Finding(err)
}

// Stop stops everything that was started, within limit.
func (s *Setup) Stop(ctx context.Context, limit time.Duration) {
	if ctx.Err() != nil {
		s.Log.Info("stopping", "why", context.Cause(ctx).Error())
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), limit, errShutdownTimeout)
	defer cancel()
	start := time.Now()
	if err := s.Life.Stop(ctx); err != nil {
		s.Log.Plain().Warn("stopped, but not everything ended in time", "duration", time.Since(start), "error", err)
		return
	}
	s.Log.Plain().Info("stopped", "duration", time.Since(start))
}
