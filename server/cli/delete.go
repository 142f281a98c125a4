package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kinproc/kinproc/server/cli/internal/output"
	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
)

func newDeleteCmd(s streams) *cobra.Command {
	var flags sandboxFlags
	var all bool
	cmd := &cobra.Command{
		Use:   "delete [NAME]",
		Short: "Delete the sandbox of this directory, with its data",
		Long: `Delete the sandbox of this directory, or the one with the given name: its objects, its
keys and remembered flags, and its contexts in the kubeconfigs of start --kubeconfig. It is stopped
first. The command does not ask for confirmation, and the data cannot be restored.

  kinproc delete
  kinproc delete NAME
  kinproc delete --all`,
		Args:              atMostName,
		ValidArgsFunction: completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.take(args); err != nil {
				return err
			}
			if !all {
				found, err := flags.Kept()
				if err != nil {
					return err
				}
				return deleteSandbox(cmd, s, found)
			}
			if err := flags.refuseWithAll("deletes"); err != nil {
				return err
			}
			every, err := sandbox.OfUser()
			if err != nil {
				return err
			}
			if len(every) == 0 {
				fmt.Fprintln(s.err, "kinproc: there are no sandboxes")
			}
			var errs []error
			for _, found := range every {
				errs = append(errs, deleteSandbox(cmd, s, found))
			}
			return errors.Join(errs...)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "delete all sandboxes of this user")
	return cmd
}

func deleteSandbox(cmd *cobra.Command, s streams, found *sandbox.Sandbox) error {
	removed, err := found.Delete(cmd.Context())
	if removed != "" {
		fmt.Fprintf(s.out, "%s deleted: %s\n", sandbox.ShownName(found.Name), output.Line(removed))
	}
	return err
}
