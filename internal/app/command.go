package app

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferry-forward/ferry/internal/config"
)

// NewRoot returns the command line of a binary with the commands that both have: help (with `help env`, the settings of
// spec) and version. The other commands are added to it.
func NewRoot(name, short string, spec any) *cobra.Command {
	root := &cobra.Command{
		Use:               name,
		Short:             short,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:              cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return Usage(fmt.Errorf("%s has no command %q; it has %s", name, args[0], commandList(cmd)))
			}
			return Usage(fmt.Errorf("%s needs a command: %s; `%s help` says more", name, commandList(cmd), name))
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usage(fmt.Errorf("%w; `%s --help` lists what there is", err, cmd.CommandPath()))
	})
	root.SetHelpCommand(helpCommand(root, spec))
	root.AddCommand(versionCommand(name))
	return root
}

func commandList(root *cobra.Command) string {
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() || c.Name() == "help" {
			names = append(names, c.Name())
		}
	}
	return strings.Join(names, ", ")
}

// NoArgs refuses arguments, and says what to do.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage(fmt.Errorf("%s takes no argument %q; settings come from the environment, `%s help env` lists them",
			cmd.CommandPath(), args[0], cmd.Root().Name()))
	}
	return nil
}

func helpCommand(root *cobra.Command, spec any) *cobra.Command {
	return &cobra.Command{
		Use:   "help [env | COMMAND]",
		Short: "Explain a command; `help env` explains all settings",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && args[0] == "env":
				if err := config.WriteHelp(cmd.OutOrStdout(), spec); err != nil {
					return Unknown(err)
				}
				return nil
			case len(args) == 0:
				return root.Help()
			}
			found, rest, err := root.Find(args)
			if err != nil || found == root || len(rest) > 0 {
				return Usage(fmt.Errorf("there is no help on %q; there is on env, %s", strings.Join(args, " "), commandList(root)))
			}
			return found.Help()
		},
	}
}

func versionCommand(name string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say what this binary is built from",
		Args:  NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := BuildVersion(name)
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s (commit %s, %s, %s)\n", name, v.Version, v.Commit, v.Date, v.Go)
			return err
		},
	}
}

// Group returns a command that only has commands of its own.
func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			problem := "needs a command"
			if len(args) > 0 {
				problem = fmt.Sprintf("has no command %q", args[0])
			}
			return Usage(errors.New(cmd.CommandPath() + " " + problem + "; it has " + commandList(cmd)))
		},
	}
	group.AddCommand(commands...)
	return group
}
