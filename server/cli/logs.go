package cli

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kinproc/kinproc/server/cli/internal/output"
	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
)

func newLogsCmd(s streams) *cobra.Command {
	var flags sandboxFlags
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs [NAME]",
		Short: "Print the log of a sandbox in the background",
		Long: `Print the log of a sandbox that kinproc start --detach has started: the one that is
running in this directory or the nearest one above, or the one with the given name. If none is
running, it is the log of the last one. With -f, the command goes on until the sandbox ends.

  kinproc start --detach -v 1
  kinproc logs -f

The log is that of the control plane. Those of pods are shown by kinproc kubectl logs.`,
		Args:              atMostName,
		ValidArgsFunction: completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.take(args); err != nil {
				return err
			}
			found, err := flags.withLog()
			if err != nil {
				return err
			}
			ctx, stop := untilInterrupted(cmd.Context())
			defer stop()
			return printLog(ctx, s.out, found, follow)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow the log until the sandbox ends")
	return cmd
}

// withLog returns the running sandbox that is meant or, if there is none, the stopped one.
func (f *sandboxFlags) withLog() (*sandbox.Sandbox, error) {
	running, err := f.Running()
	if err == nil {
		return running, nil
	}
	if kept, keptErr := f.Kept(); keptErr == nil {
		return kept, nil
	}
	return nil, err
}

// logInterval is how often to look whether there is more in a log.
const logInterval = 50 * time.Millisecond

// printLog prints the log of a sandbox. If it follows the log, it returns when the sandbox or ctx
// has ended.
func printLog(ctx context.Context, w io.Writer, s *sandbox.Sandbox, follow bool) error {
	file, err := s.OpenLog()
	if err != nil {
		return err
	}
	defer file.Close()
	tick := time.NewTicker(logInterval)
	defer tick.Stop()
	for {
		runs := s.Held() // before reading, so that the last lines are not missed
		if err := output.Copy(w, file); err != nil {
			return err
		}
		if !follow || !runs {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
