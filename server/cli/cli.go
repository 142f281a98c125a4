// Package cli implements the command line, with one file for each command.
package cli

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

	"github.com/kinproc/kinproc/server/cli/internal/standin"
)

// The exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError is an error in how a command was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// streams are a command's input and output: data goes to out, messages for people go to err.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// Main runs the command line and returns the exit code: 0 for success, 1 for failure, 2 for wrong
// usage. If the executable has the name of a program that kinproc stands in for, Main runs that
// program.
func Main(args []string) int {
	s := streams{os.Stdin, os.Stdout, os.Stderr}
	if name := standin.Name(os.Args[0]); name != "" {
		return standIn(context.Background(), s, name, args)
	}
	err := newRootCmd(s, args).ExecuteContext(context.Background())
	if err == nil {
		return 0
	}
	if exit := new(exitError); errors.As(err, exit) {
		return exit.code
	}
	fmt.Fprintf(os.Stderr, "kinproc: %s\n", oneLineOf(plain(oneLine(err))))
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailed
}

// untilInterrupted returns a context that the first interrupt cancels. The second interrupt ends
// the process. SIGTERM and SIGHUP count as the first interrupt but never as the second: SIGTERM
// because it may come from two calls of kinproc stop, SIGHUP because both the kernel and the shell
// send it when a terminal closes. SIGHUP is ignored if the parent process ignored it, as nohup
// does.
func untilInterrupted(parent context.Context) (context.Context, context.CancelFunc) {
	gentle := []os.Signal{syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		gentle = append(gentle, syscall.SIGHUP)
	}
	signals := append([]os.Signal{os.Interrupt}, gentle...)
	// Nobody reads this channel. Its only purpose is to disable the default action of the signals.
	signal.Notify(make(chan os.Signal, 1), gentle...)
	ctx, stop := signal.NotifyContext(parent, signals...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// oneLine joins the lines of joined errors.
func oneLine(err error) string {
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}

func newRootCmd(s streams, args []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kinproc",
		Short: "A Kubernetes control plane in one process",
		Long: `kinproc runs a Kubernetes control plane in one process: an embedded etcd and three API
servers, chained as in kube-apiserver: the aggregator, the core-like server and the server of
custom resources.

  kinproc start --detach
  kinproc kubectl get namespaces
  kinproc stop`,
		Version:       versions(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			hint := "see kinproc --help"
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				hint = "did you mean " + strings.Join(near, " or ") + "?"
			}
			return usageError{fmt.Errorf("unknown command %q (%s)", args[0], hint)}
		},
		// The number of wrong letters up to which a command counts as a typo.
		SuggestionsMinimumDistance: 2,
		// ours explains what is wrong with its arguments
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.SetArgs(args)
	cmd.SetIn(s.in)
	cmd.SetOut(s.out)
	cmd.SetErr(s.err)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{explainFlag(cmd, err)}
	})
	cmd.AddCommand(newStartCmd(s, args), newStopCmd(s), newStatusCmd(s), newListCmd(s),
		newDeleteCmd(s), newLogsCmd(s), newExecCmd(s, args),
		newSnapshotCmd(s), newResetCmd(s), newAssetsCmd(s), newKubectlCmd(s), newTraceCmd(s),
		newHistoryCmd(s), newFaultCmd(s), newExploreCmd(s), newDashboardCmd(s), newExtensionCmd(s),
		newOperatorCmd(s), newCompletionCmd(s), newVersionCmd(s))
	return cmd
}

// noArgs is like cobra.NoArgs, but returns a usageError.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments, but was given %q", cmd.CommandPath(), args)}
	}
	return nil
}
