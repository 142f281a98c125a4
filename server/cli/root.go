// Package cli implements the command line, with one file for each command.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kinproc/kinproc/server/cli/internal/output"
	"github.com/kinproc/kinproc/server/cli/internal/standin"
)

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
	fmt.Fprintf(os.Stderr, "kinproc: %s\n", output.Line(output.Plain(err)))
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailed
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
		newSnapshotCmd(s), newResetCmd(s), newAtCmd(s), newForkCmd(s), newAssetsCmd(s),
		newKubectlCmd(s), newTraceCmd(s), newHistoryCmd(s), newFaultCmd(s), newExploreCmd(s),
		newDashboardCmd(s), newExtensionCmd(s), newOperatorCmd(s), newCompletionCmd(s),
		newVersionCmd(s))
	return cmd
}
