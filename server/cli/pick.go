package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kinproc/kinproc/server/cli/internal/output"
	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
)

// sandboxFlags are the flags that select a sandbox.
type sandboxFlags struct{ sandbox.Choice }

func (f *sandboxFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.DataDir, "data-dir", "",
		"data directory of the sandbox; if empty, .kinproc here or in the nearest directory above")
	cmd.Flags().StringVar(&f.Name, "name", "",
		"name of the sandbox, if several are running; the one that was started last if empty")
	_ = cmd.RegisterFlagCompletionFunc("name",
		func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			found, _ := f.Find()
			var names []string
			for _, s := range found {
				if s.Record != nil && sandbox.CheckName(s.Name) == nil {
					names = append(names, s.Name)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		})
}

// take uses an argument as the name of the sandbox.
func (f *sandboxFlags) take(args []string) error {
	if len(args) == 0 {
		return nil
	}
	if f.Name != "" && f.Name != args[0] {
		return usageError{fmt.Errorf("the argument %q and --name=%s name different sandboxes", args[0],
			f.Name)}
	}
	f.Name = args[0]
	return nil
}

// refuseWithAll returns a usageError if the flags select a sandbox although all are meant.
func (f *sandboxFlags) refuseWithAll(does string) error {
	if f.Name != "" || f.DataDir != "" {
		return usageError{fmt.Errorf("--all %s every sandbox: leave out the name and --data-dir", does)}
	}
	return nil
}

// atMostName is like cobra.MaximumNArgs(1), but returns a usageError.
func atMostName(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usageError{fmt.Errorf("%s takes the name of one sandbox, but was given %q",
			cmd.CommandPath(), args)}
	}
	return nil
}

// completeSandboxes completes the name of a sandbox.
func completeSandboxes(_ *cobra.Command, args []string, _ string) (
	[]string, cobra.ShellCompDirective,
) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, _ := sandbox.OfUser()
	var names []string
	for _, s := range all {
		if sandbox.CheckName(s.Name) == nil {
			names = append(names, s.Name+"\t"+output.Line(s.Folder))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func addKubeconfigFlag(cmd *cobra.Command, kubeconfig *string) {
	cmd.Flags().StringVar(kubeconfig, "kubeconfig", "",
		"kubeconfig of the control plane; if empty, KUBECONFIG or the working directory's sandbox")
}
