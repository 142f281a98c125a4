package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
)

func newStopCmd(s streams) *cobra.Command {
	var flags sandboxFlags
	var all bool
	cmd := &cobra.Command{
		Use:   "stop [NAME]",
		Short: "Stop the sandbox of this directory",
		Long: `Stop the sandbox that runs in this directory or the nearest one above, or the one with the
given name, and wait until it has ended. Its data is kept, and kinproc start serves it again, unless
the sandbox is ephemeral.

  kinproc stop
  kinproc stop NAME
  kinproc stop --all`,
		Args:              atMostName,
		ValidArgsFunction: completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.take(args); err != nil {
				return err
			}
			if !all {
				found, err := flags.Running()
				if err != nil {
					return err
				}
				return stop(cmd, s, found)
			}
			if err := flags.refuseWithAll("stops"); err != nil {
				return err
			}
			every, err := sandbox.OfUser()
			if err != nil {
				return err
			}
			var errs []error
			running := 0
			for _, found := range every {
				if !found.Runs() {
					continue
				}
				running++
				if err := stop(cmd, s, found); err != nil {
					errs = append(errs, fmt.Errorf("%s in %s: %w", sandbox.ShownName(found.Name), found.Folder,
						err))
				}
			}
			if running == 0 {
				fmt.Fprintln(s.err, "kinproc: no sandbox is running")
			}
			return errors.Join(errs...)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "stop all running sandboxes of this user")
	return cmd
}

func stop(cmd *cobra.Command, s streams, found *sandbox.Sandbox) error {
	if err := found.Stop(cmd.Context()); err != nil {
		return err
	}
	_, err := fmt.Fprintf(s.out, "%s stopped\n", sandbox.ShownName(found.Name))
	return err
}
