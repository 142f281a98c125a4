package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// sandboxFlags are the flags that select a running sandbox.
type sandboxFlags struct {
	dataDir string
	name    string
}

func (f *sandboxFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.dataDir, "data-dir", "",
		"data directory of the sandbox; if empty, .kinproc here or in the nearest directory above")
	cmd.Flags().StringVar(&f.name, "name", "",
		"name of the sandbox, if several are running; the one that was started last if empty")
	_ = cmd.RegisterFlagCompletionFunc("name",
		func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			found, _ := f.find()
			var names []string
			for _, s := range found {
				if s.record != nil {
					names = append(names, s.record.Name)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		})
}

// find returns the sandboxes that the flags may refer to, in the order of findSandbox's preference.
func (f *sandboxFlags) find() ([]*sandbox, error) {
	if f.dataDir == "" {
		return findSandboxes(os.Geteuid(), ".")
	}
	found, err := sandboxesIn(os.Geteuid(), f.dataDir)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("there is no sandbox in %s; start one with kinproc start --data-dir %s",
			f.dataDir, f.dataDir)
	}
	return found, err
}

func newStopCmd(s streams) *cobra.Command {
	var flags sandboxFlags
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop the sandbox of this directory",
		Long: `Stop the sandbox that runs in this directory or the nearest one above, and wait until it
has ended. Its data is kept, and kinproc start serves it again, unless the sandbox is ephemeral.`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := flags.find()
			if err != nil {
				return err
			}
			i := slices.IndexFunc(found, func(s *sandbox) bool {
				return s.record != nil && (flags.name == "" || flags.name == s.record.Name)
			})
			switch {
			case i < 0 && flags.name != "":
				return fmt.Errorf("no sandbox %q is running here; see kinproc status", flags.name)
			case i < 0:
				return fmt.Errorf("the sandbox in %s is not running", found[0].folder)
			}
			if err := stopSandbox(cmd.Context(), found[i]); err != nil {
				return err
			}
			_, err = fmt.Fprintf(s.out, "%s stopped\n", found[i].record.Name)
			return err
		},
	}
	flags.add(cmd)
	return cmd
}

// stopSandbox asks a sandbox's process to end, and waits for it.
func stopSandbox(ctx context.Context, s *sandbox) error {
	p, err := os.FindProcess(s.record.PID)
	if err == nil {
		err = terminate(p)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop process %d: %w", s.record.PID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout+time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if runs, _ := running(s.folder); !runs {
			if s.record.Ephemeral {
				// The process does this too, unless it was killed, and may not be done yet.
				return removeEphemeral(filepath.Dir(filepath.Dir(s.folder)), s.folder)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d has not ended yet: %w; check its log, or kill it",
				s.record.PID, ctx.Err())
		case <-tick.C:
		}
	}
}
