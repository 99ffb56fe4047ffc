package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ferry-forward/ferry/internal/config"
)

// The exit codes of both binaries.
const (
	CodeGood    = 0 // done
	CodeFinding = 1 // a check or an audit found something, or a running process could not go on
	CodeUsage   = 2 // wrong command, flag, setting or route file
	CodeUnknown = 3 // could not find out: the database or the broker is away
)

// ExitError is an error that decides the exit code.
type ExitError struct {
	Code int
	Err  error // nil: everything was said already
}

// Error returns the text of Err.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }

// Usage marks an error as wrong use: of a command, a flag, a setting or the route file.
func Usage(err error) error { return exit(CodeUsage, err) }

// Finding marks an error as something that was found to be wrong.
func Finding(err error) error { return exit(CodeFinding, err) }

// Unknown marks an error as the reason why something could not be found out.
func Unknown(err error) error { return exit(CodeUnknown, err) }

func exit(code int, err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{Code: code, Err: err}
}

// Main runs a binary's command line and returns the exit code. The first SIGTERM or SIGINT cancels the command's
// context; a second one ends the process at once.
func Main(root *cobra.Command) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		cancel(fmt.Errorf("%w: %s", ErrSignal, <-signals))
		<-signals
		fmt.Fprintf(os.Stderr, "%s: second signal, ending at once; what was in work is taken up again at the next start\n", root.Name())
		os.Exit(CodeFinding)
	}()
	return Code(os.Stderr, root.ExecuteContext(ctx))
}

// ErrSignal is the cause of a context that a signal cancelled.
var ErrSignal = errors.New("stopped by a signal")

// Code says an error on w, a line for each fault, and returns its exit code. A command that a signal ended did what it was
// asked to. What is not an ExitError comes from cobra:
// a command or a flag that does not exist.
func Code(w io.Writer, err error) int {
	if err == nil || errors.Is(err, ErrSignal) {
		return CodeGood
	}
	code, said := CodeUsage, false
	var decided *ExitError
	if errors.As(err, &decided) {
		code, said = decided.Code, decided.Err == nil
	}
	if !said {
		_, _ = fmt.Fprintln(w, oneLine(err))
	}
	return code
}

// oneLine keeps the lines of faults, and makes one line of every other error.
func oneLine(err error) string {
	var faults config.Faults
	var several interface{ Faults() []string }
	if errors.As(err, &faults) || errors.As(err, &several) {
		return strings.TrimRight(err.Error(), "\n")
	}
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
