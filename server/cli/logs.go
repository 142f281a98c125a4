package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

func newLogsCmd(s streams) *cobra.Command {
	var flags sandboxFlags
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs [NAME]",
		Short: "Print the log of a sandbox that runs in the background, or did",
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
			folder, err := flags.folderWithLog()
			if err != nil {
				return err
			}
			ctx, stop := untilInterrupted(cmd.Context())
			defer stop()
			return printLog(ctx, s.out, folder, follow)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the sandbox ends")
	return cmd
}

// folderWithLog returns the folder of the running sandbox that is meant or, if there is none, of
// the stopped one.
func (f *sandboxFlags) folderWithLog() (string, error) {
	running, err := f.pickRunning()
	if err == nil {
		return running.folder, nil
	}
	if kept, keptErr := f.pickKept(); keptErr == nil {
		return kept.Folder, nil
	}
	return "", err
}

// logInterval is how often to look whether there is more in a log.
const logInterval = 50 * time.Millisecond

// printLog prints the log of a folder. If it follows, it returns when the sandbox or ctx has ended.
func printLog(ctx context.Context, w io.Writer, folder string, follow bool) error {
	private, err := openPrivate(folder, os.Geteuid())
	if err != nil {
		return err
	}
	defer private.close()
	file, err := private.open(logName)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no log in %s: only a sandbox that was started with --detach has one",
			filepath.Clean(folder))
	}
	if err != nil {
		return err
	}
	defer file.Close()
	tick := time.NewTicker(logInterval)
	defer tick.Stop()
	for {
		runs, _ := running(folder) // before reading, so that the last lines are not missed
		if err := copyVisible(w, file); err != nil {
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
