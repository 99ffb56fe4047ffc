// Demo shows Ferry at work on one machine: `make demo`. `demo platform` is its parking platform alone, `demo events`
// its source of events alone; compose.yaml runs these two as services.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/mattn/go-isatty"
	"golang.org/x/sys/unix"

	"github.com/ferry-forward/ferry/internal/demo"
)

func main() { os.Exit(run(os.Args[1:])) }

// Exit codes: 0 good, 1 not every event is accounted for or the demo broke, 2 wrong use, 130 interrupted.
func run(args []string) int {
	if len(args) == 2 && args[0] == "sweep" {
		return exit(demo.Sweep(os.Stdin, args[1]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	go func() {
		<-ctx.Done()
		stop() // a second Ctrl-C ends the demo at once
	}()
	err := dispatch(ctx, args)
	if err != nil && ctx.Err() != nil {
		fmt.Fprintln(os.Stderr, "\ninterrupted: everything is stopped and removed")
		return 130
	}
	return exit(err)
}

func dispatch(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "platform" {
		return platformCommand(ctx, args[1:])
	}
	if len(args) > 0 && args[0] == "events" {
		return eventsCommand(ctx, args[1:])
	}
	return demoCommand(ctx, args)
}

func demoCommand(ctx context.Context, args []string) error {
	live := isatty.IsTerminal(os.Stdout.Fd()) && os.Getenv("TERM") != "dumb"
	s := demo.Settings{Out: os.Stdout, Live: live}
	if size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ); err == nil {
		s.Width = int(size.Col)
	}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.StringVar(&s.BinDir, "bin", "bin", "folder of the binaries ingester and forwarder")
	flags.StringVar(&s.Routes, "routes", "examples/parking/routes.yaml", "route file")
	if err := parse(flags, args); err != nil {
		return err
	}
	if err := s.FromEnv(os.Getenv); err != nil {
		return err
	}
	var err error
	if s.Self, err = os.Executable(); err != nil {
		return fmt.Errorf("finding the demo's own binary: %w", err)
	}
	return demo.Run(ctx, s)
}

func platformCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("demo platform", flag.ContinueOnError)
	addr := flags.String("addr", "127.0.0.1:8080", "address to listen on")
	if err := parse(flags, args); err != nil {
		return err
	}
	return demo.RunPlatform(ctx, *addr, os.Getenv("ACCESS_NAME"), os.Getenv("ACCESS_PWD"))
}

func eventsCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("demo events", flag.ContinueOnError)
	brokers := flags.String("brokers", "127.0.0.1:9092", "Kafka brokers, comma-separated")
	rate := flags.Int("rate", 20, "events a second")
	if err := parse(flags, args); err != nil {
		return err
	}
	return demo.RunEvents(ctx, *brokers, *rate)
}

func parse(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unknown command %q: there are platform, events, and none for the whole demo", flags.Arg(0))
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		return fmt.Errorf("%w: %w", demo.ErrUsage, err)
	}
	return err
}

func exit(err error) int {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, demo.ErrUsage):
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 2
	default:
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		return 1
	}
}
