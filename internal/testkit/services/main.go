// Services runs a command with a Postgres and a real Kafka beside it, one of each for the whole run, which tests find by
// FERRY_TEST_POSTGRES and FERRY_TEST_KAFKA: services -- go test ./... . What is set already is not started. It exits
// with the command's code, and with 1 when a service is missing: nothing is skipped.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/ferry-forward/ferry/internal/localpg"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
)

const (
	postgresVar = pgtest.EnvURL
	kafkaVar    = "FERRY_TEST_KAFKA"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: services -- COMMAND [ARGUMENT…]")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	var s services
	defer s.stop()
	if err := s.start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "services:", err)
		return 1
	}
	code, err := command(ctx, args, s.env)
	if err != nil {
		fmt.Fprintln(os.Stderr, "services:", err)
	}
	return code
}

// services are what was started and has to be stopped.
type services struct {
	env   []string
	stops []func()
}

func (s *services) stop() {
	for i := len(s.stops) - 1; i >= 0; i-- {
		s.stops[i]()
	}
}

// start starts what the environment does not give, both at once: each takes some seconds.
func (s *services) start(ctx context.Context) error {
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for name, start := range map[string]func(context.Context) (string, func(), error){postgresVar: postgres, kafkaVar: kafka} {
		if os.Getenv(name) != "" {
			continue
		}
		wg.Go(func() {
			from := time.Now()
			addr, stop, err := start(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			s.env = append(s.env, name+"="+addr)
			s.stops = append(s.stops, stop)
			fmt.Fprintf(os.Stderr, "services: %s is up after %.1f s\n", name, time.Since(from).Seconds())
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(errs...)
}

func postgres(ctx context.Context) (string, func(), error) {
	server, err := localpg.Start(ctx, localpg.Config{
		Params: pgtest.Params(),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return "", nil, fmt.Errorf("starting Postgres for the tests: %w", err)
	}
	return server.URL, server.Stop, nil
}

func kafka(context.Context) (string, func(), error) {
	dir, err := os.MkdirTemp("", "ferry-kafka-")
	if err != nil {
		return "", nil, fmt.Errorf("making the directory of Kafka: %w", err)
	}
	remove := func() { _ = os.RemoveAll(dir) }
	addr, stop, err := kafkatest.StartReal(dir)
	if err != nil {
		remove()
		return "", nil, fmt.Errorf("starting Kafka for the tests: %w", err)
	}
	return addr, func() { stop(); remove() }, nil
}

// command runs the command in a group of its own, passes signals on to the group, and returns its exit code.
func command(ctx context.Context, args, env []string) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("running %s: %w", args[0], err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		return exitCode(err)
	case <-ctx.Done():
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // it may have ended just now
	select {
	case err := <-done:
		return exitCode(err)
	case <-time.After(10 * time.Second):
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		return exitCode(<-done)
	}
}

func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode(), nil
	default: // ended by a signal, or it could not be waited for
		return 1, err
	}
}
