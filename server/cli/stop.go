package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
				if s.record != nil && validName.MatchString(s.record.Name) {
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
			_, err = fmt.Fprintf(s.out, "%s stopped\n", shownName(found.record.Name))
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
		found := l.sandbox()
		err := l.wrong
		switch {
		case err != nil:
			if runs, _ := running(l.Folder); !runs {
				continue
			}
		case !found.findRecord():
			continue
		default:
			err = stopSandbox(ctx, found)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s in %s: %w", shownName(l.Name), l.Folder, err))
			continue
		}
		stopped++
		fmt.Fprintf(s.out, "%s stopped\n", shownName(l.Name))
	}
	if stopped == 0 && len(errs) == 0 {
		fmt.Fprintln(s.err, "kinproc: no sandbox is running")
	}
	return errors.Join(errs...)
}

// findRecord reports whether a sandbox is running. If its record is missing, it asks the system
// which process has announced it.
func (s *sandbox) findRecord() bool {
	if s.record != nil || !s.unknown {
		return s.record != nil
	}
	private, err := openPrivate(s.folder, os.Geteuid())
	if err != nil {
		return false
	}
	defer private.close()
	pid, err := readyProcess(private)
	if err != nil || pid == 0 {
		return false
	}
	s.record = &record{Name: nameFor(s.folder), PID: pid, Ephemeral: s.inEphemeral()}
	return true
}

// inEphemeral reports whether a sandbox is in a folder for ephemeral ones.
func (s *sandbox) inEphemeral() bool {
	return filepath.Base(filepath.Dir(s.folder)) == ephemeralName
}

func (s *sandbox) errUnknown() error {
	return fmt.Errorf("the sandbox in %s is starting or stopping, or somebody has removed its %s; "+
		"wait, or end it with kinproc stop, Ctrl-C or kill", s.folder, recordName)
}

// process returns the process of a sandbox that has a record. It is nil if it has just ended.
func (s *sandbox) process() (*os.Process, error) {
	private, err := openPrivate(s.folder, os.Geteuid())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer private.close()
	for attempt := 1; ; attempt++ {
		p, err := findProcess(private, s.record)
		if err == nil {
			return p, nil
		}
		if runs, _ := running(s.folder); !runs {
			return nil, nil
		}
		if attempt == lockAttempts {
			return nil, err
		}
		time.Sleep(time.Millisecond) // it gives up one lock after the other when it ends
	}
}

// stopSandbox asks a sandbox's process to end, and waits for it.
func stopSandbox(ctx context.Context, s *sandbox) error {
	p, err := s.process()
	if err != nil {
		return err
	}
	if p != nil {
		if err := terminate(p); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return errors.Join(fmt.Errorf("stop process %d: %w", s.record.PID, err), p.Release())
		}
		defer func() { _ = p.Release() }()
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout+time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if runs, _ := running(s.folder); !runs {
			if parent := filepath.Dir(s.folder); s.record.Ephemeral && s.inEphemeral() {
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
