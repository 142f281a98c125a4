package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
			if all {
				return flags.stopAll(cmd.Context(), s)
			}
			found, err := flags.pickRunning()
			if err != nil {
				return err
			}
			if err := stopSandbox(cmd.Context(), found); err != nil {
				return err
			}
			_, err = fmt.Fprintf(s.out, "%s stopped\n", found.record.Name)
			return err
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "stop all running sandboxes of this user")
	return cmd
}

// stopAll stops all running sandboxes of the user.
func (f *sandboxFlags) stopAll(ctx context.Context, s streams) error {
	if f.name != "" || f.dataDir != "" {
		return usageError{errors.New("--all stops every sandbox, so it takes no other one")}
	}
	all, err := sandboxesOfUser()
	if err != nil {
		return err
	}
	var errs []error
	stopped := 0
	for _, l := range all {
		if l.record == nil {
			continue
		}
		if err := stopSandbox(ctx, l.sandbox()); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.Name, err))
			continue
		}
		stopped++
		fmt.Fprintf(s.out, "%s stopped\n", l.Name)
	}
	if stopped == 0 && len(errs) == 0 {
		fmt.Fprintln(s.err, "kinproc: no sandbox is running")
	}
	return errors.Join(errs...)
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
			if parent := filepath.Dir(s.folder); s.record.Ephemeral &&
				filepath.Base(parent) == ephemeralName {
				// The process does this too, unless it was killed, and may not be done yet.
				return removeEphemeral(filepath.Dir(parent), s.folder)
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
