package app_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/config"
)

func execute(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	root := app.NewRoot("forwarder", "Sends messages", config.Forwarder{})
	leaf := func(name string, run func() error) *cobra.Command {
		return &cobra.Command{Use: name, Short: name, Args: app.NoArgs, RunE: func(*cobra.Command, []string) error { return run() }}
	}
	root.AddCommand(
		leaf("run", func() error { return app.Unknown(errors.New("line one\nline two")) }),
		leaf("check", func() error { return app.Finding(config.Faults{{Name: "A", Problem: "x"}, {Name: "B", Problem: "y"}}) }),
		app.Group("migrate", "Change the schema", leaf("up", func() error { return nil }), leaf("status", func() error { return nil })),
	)
	var out, errs bytes.Buffer
	root.SetOut(&out)
	root.SetArgs(args)
	code = app.Code(&errs, root.ExecuteContext(t.Context()))
	return out.String(), errs.String(), code
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args   string
		code   int
		stderr string
	}{
		{"", 2, "forwarder needs a command: check, help, migrate, run, version; `forwarder help` says more"},
		{"fly", 2, `forwarder has no command "fly"; it has check, help, migrate, run, version`},
		{"--fast", 2, "unknown flag: --fast; `forwarder --help` lists what there is"},
		{"run --fast", 2, "unknown flag: --fast; `forwarder run --help` lists what there is"},
		{"run now", 2, "forwarder run takes no argument \"now\"; settings come from the environment, `forwarder help env` lists them"},
		{"migrate", 2, "forwarder migrate needs a command; it has status, up"},
		{"migrate down", 2, `forwarder migrate has no command "down"; it has status, up`},
		{"migrate up", 0, ""},
		{"version", 0, ""},
		{"help", 0, ""},
		{"help env", 0, ""},
		{"help migrate up", 0, ""},
		{"help fly", 2, `there is no help on "fly"; there is on env, check, help, migrate, run, version`},
		{"--help", 0, ""},
		{"run --help", 0, ""},
		{"run", 3, "line one; line two"},
		{"check", 1, "A: x\nB: y"},
	} {
		stdout, stderr, code := execute(t, strings.Fields(c.args)...)
		if code != c.code || strings.TrimSpace(stderr) != c.stderr {
			t.Errorf("%q: exit %d, stderr %q", c.args, code, stderr)
		}
		if said := c.code == 0 && c.args != "migrate up"; said != (stdout != "") {
			t.Errorf("%q: stdout is %q", c.args, stdout)
		}
	}
}

func TestHelpEnvHasAllSettings(t *testing.T) {
	t.Parallel()
	stdout, _, _ := execute(t, "help", "env")
	for _, s := range config.Describe(config.Forwarder{}) {
		if !strings.Contains(stdout, s.Name+"\n") || s.Default != "" && !strings.Contains(stdout, "default "+s.Default) {
			t.Errorf("help env lacks %s or its default", s.Name)
		}
	}
}

func TestCodes(t *testing.T) {
	t.Parallel()
	why := errors.New("why")
	for want, err := range map[int]error{
		0: nil, 1: app.Finding(why), 2: fmt.Errorf("around: %w", app.Usage(why)), 3: app.Unknown(why),
	} {
		if got := app.Code(&bytes.Buffer{}, err); got != want {
			t.Errorf("%v: exit %d, want %d", err, got, want)
		}
		if err != nil && want != 0 && !errors.Is(err, why) {
			t.Errorf("%v does not unwrap", err)
		}
	}
	if app.Usage(nil) != nil {
		t.Error("no error became one")
	}
}
