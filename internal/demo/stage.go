package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/ferry-forward/ferry/internal/demo/platform"
	"github.com/ferry-forward/ferry/internal/localpg"
)

const (
	accessName = "demo"
	accessPwd  = "demo-secret"

	readyTimeout = 60 * time.Second
	stopGrace    = 10 * time.Second
)

var errNotReady = errors.New("it was not ready within a minute")

// stage is all that runs in the demo. Whatever is started puts its stop on stops at once.
type stage struct {
	settings Settings
	screen   *screen
	dir      *workDir
	stops    []func()

	postgres  *localpg.Server
	brokers   []string
	platform  *platform.Platform
	server    *platform.Server
	ingester  *child
	forwarder *child
	admin     map[string]string // binary → its admin address
	source    *source
	books     *books
}

// tearDown stops what was started, last in first out.
func (s *stage) tearDown() {
	for len(s.stops) > 0 {
		last := len(s.stops) - 1
		stop := s.stops[last]
		s.stops = s.stops[:last]
		stop()
	}
}

// setUp starts everything and waits until both binaries are ready. On an error the caller tears down what is there.
func (s *stage) setUp(ctx context.Context) error {
	var err error
	if s.dir, err = newWorkDir(s.settings.Self); err != nil {
		return err
	}
	s.stops = append(s.stops, s.dir.remove)
	s.screen.say("Folder      %s, removed at the end", s.dir.path)
	for _, step := range []func(context.Context) error{
		s.startPostgres, s.startKafka, s.startPlatform, s.migrate, s.startBinaries, s.connect,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) startPostgres(ctx context.Context) error {
	from := time.Now()
	logger := slog.New(slog.NewTextHandler(lineWriter{s.screen}, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	var err error
	s.postgres, err = localpg.Start(ctx, localpg.Config{Dir: filepath.Join(s.dir.path, "postgres"), Logger: logger})
	if err != nil {
		return fmt.Errorf("starting Postgres: %w", err)
	}
	s.stops = append(s.stops, s.postgres.Stop)
	s.screen.say("Postgres    %s (%.1f s)", s.postgres.BinDir, time.Since(from).Seconds())
	return nil
}

// lineWriter shows log lines on the screen.
type lineWriter struct{ *screen }

func (w lineWriter) Write(p []byte) (int, error) {
	w.say("            %s", strings.TrimSpace(string(p)))
	return len(p), nil
}

func (s *stage) startKafka(context.Context) error {
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1),
		kfake.SeedTopics(6, vehicleTopic),
		kfake.SeedTopics(3, heartbeatTopic),
		kfake.SeedTopics(1, deadLetterTopic),
	)
	if err != nil {
		return fmt.Errorf("starting the Kafka broker: %w", err)
	}
	s.stops = append(s.stops, cluster.Close)
	s.brokers = cluster.ListenAddrs()
	s.screen.say("Kafka       %s: topics %s (6 partitions), %s (3), %s (1)", strings.Join(s.brokers, ","), vehicleTopic, heartbeatTopic, deadLetterTopic)
	return nil
}

func (s *stage) startPlatform(ctx context.Context) error {
	s.platform = platform.New(platform.Config{AccessName: accessName, AccessPwd: accessPwd, Keep: 10_000_000})
	var err error
	if s.server, err = platform.Listen(ctx, "127.0.0.1:0", s.platform); err != nil {
		return err
	}
	s.stops = append(s.stops, func() { _ = s.server.Stop() }) // a server that failed has shown in the messages
	s.screen.say("Platform    http://%s: 2–27 ms, some 800 ms; 8 in 100 events meet an error 500, 1 in 100 is refused", s.server.Addr())
	return nil
}

func (s *stage) env(extra ...string) []string {
	return append([]string{
		"FERRY_DATABASE_URL=" + s.postgres.URL,
		"FERRY_ROUTES=" + filepath.Join(s.dir.path, "routes.yaml"),
		"FERRY_KAFKA_BROKERS=" + strings.Join(s.brokers, ","),
		"PLATFORM_URL=http://" + s.server.Addr(),
		"ACCESS_NAME=" + accessName,
		"ACCESS_PWD=" + accessPwd,
	}, extra...)
}

func (s *stage) program(name string, env []string, args ...string) program {
	return program{name: name, path: s.settings.binary(name), args: args, env: env, dir: s.dir.path}
}

func (s *stage) migrate(ctx context.Context) error {
	if err := s.writeRoutes(); err != nil {
		return err
	}
	p := s.program("forwarder", s.env(), "migrate", "up")
	p.name = "migrate"
	if err := p.run(ctx); err != nil {
		return fmt.Errorf("making the schema: %w", err)
	}
	return nil
}

// The demo's routes are the example's, with a shorter first wait, so that it has settled a few seconds after its end.
const exampleInitial, demoInitial = "initial: 5s", "initial: 1s"

func (s *stage) writeRoutes() error {
	example, err := os.ReadFile(s.settings.Routes)
	if err != nil {
		return fmt.Errorf("reading the route file (the demo runs at the top of the repository): %w", err)
	}
	if strings.Count(string(example), exampleInitial) != 1 {
		return fmt.Errorf("the demo shortens %q in %s, and it is not there once", exampleInitial, s.settings.Routes)
	}
	routes := strings.Replace(string(example), exampleInitial, demoInitial, 1)
	path := filepath.Join(s.dir.path, "routes.yaml")
	if err := os.WriteFile(path, []byte(routes), 0o600); err != nil {
		return fmt.Errorf("writing the demo's routes: %w", err)
	}
	s.screen.say("Routes      %s, with retry.%s in place of %s", s.settings.Routes, demoInitial, exampleInitial)
	return nil
}

func (s *stage) startBinaries(ctx context.Context) error {
	s.admin = map[string]string{}
	for name, c := range map[string]**child{"ingester": &s.ingester, "forwarder": &s.forwarder} {
		addr, err := freeAddr(ctx)
		if err != nil {
			return err
		}
		s.admin[name] = addr
		started, err := s.program(name, s.env("FERRY_ADMIN_ADDR="+addr), "run").start()
		if err != nil {
			return err
		}
		*c = started
	}
	// The ingester first: what it has read goes to the forwarder's database.
	s.stops = append(s.stops, func() { s.forwarder.stop(stopGrace) }, func() { s.ingester.stop(stopGrace) })
	for _, c := range []*child{s.ingester, s.forwarder} {
		if err := s.awaitReady(ctx, c); err != nil {
			return err
		}
	}
	s.screen.say("Ferry       ingester (pid %d) and forwarder (pid %d) are ready", s.ingester.cmd.Process.Pid, s.forwarder.cmd.Process.Pid)
	return nil
}

// awaitReady waits until the child answers /readyz with 200.
func (s *stage) awaitReady(ctx context.Context, c *child) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, errNotReady)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	why := "no answer yet"
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.admin[c.name]+"/readyz", nil)
		if err != nil {
			return fmt.Errorf("asking %s whether it is ready: %w", c.name, err)
		}
		if resp, err := client.Do(req); err == nil {
			body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // only to say why
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			why = strings.TrimSpace(string(body))
		}
		select {
		case <-tick.C:
		case <-c.done:
			return c.ended()
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errNotReady) {
				return fmt.Errorf("starting %s: %w: %s; the end of its log:\n%s", c.name, errNotReady, why, c.tail())
			}
			return context.Cause(ctx)
		}
	}
}

func (s *stage) connect(ctx context.Context) error {
	var err error
	if s.source, err = newSource(s.brokers); err != nil {
		return err
	}
	s.stops = append(s.stops, s.source.close)
	if s.books, err = openBooks(ctx, s.postgres.URL); err != nil {
		return err
	}
	s.stops = append(s.stops, s.books.close)
	return nil
}

// broken says that something ended that should still be running.
func (s *stage) broken() error {
	select {
	case <-s.ingester.done:
		return s.ingester.ended()
	case <-s.forwarder.done:
		return s.forwarder.ended()
	case <-s.postgres.Done():
		return errors.New("the demo's Postgres ended")
	default:
		return nil
	}
}

func freeAddr(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}
