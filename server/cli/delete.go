package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kinproc/kinproc/server/internal/datadir"
)

func newDeleteCmd(s streams) *cobra.Command {
	var flags sandboxFlags
	var all bool
	cmd := &cobra.Command{
		Use:   "delete [NAME]",
		Short: "Delete the sandbox of this directory, with its data",
		Long: `Delete the sandbox of this directory, or the one with the given name: its objects, its
keys and what it remembers, and its contexts in the kubeconfigs of start --kubeconfig. It is stopped
before. The command does not ask; nothing brings the data back.

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
				l, err := flags.pickKept()
				if err != nil {
					return err
				}
				return deleteSandbox(cmd.Context(), s, l)
			}
			if flags.name != "" || flags.dataDir != "" {
				return usageError{errors.New("--all deletes every sandbox, so it takes no other one")}
			}
			every, err := sandboxesOfUser()
			if err != nil {
				return err
			}
			if len(every) == 0 {
				fmt.Fprintln(s.err, "kinproc: there are no sandboxes")
			}
			var errs []error
			for i := range every {
				if every[i].wrong != nil {
					errs = append(errs, fmt.Errorf("%s is not trusted: %w", every[i].Folder, every[i].wrong))
					continue
				}
				errs = append(errs, deleteSandbox(cmd.Context(), s, &every[i]))
			}
			return errors.Join(errs...)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "delete all sandboxes of this user")
	return cmd
}

// deleteSandbox stops a sandbox and removes its files and its entries in kubeconfigs.
func deleteSandbox(ctx context.Context, s streams, l *listed) error {
	if found := l.sandbox(); found.findRecord() {
		l.record = found.record
		if err := stopSandbox(ctx, found); err != nil {
			return err
		}
		if l.record.Ephemeral {
			unregister(l.Folder)
			fmt.Fprintf(s.out, "%s deleted: it was ephemeral, and is stopped\n", shownName(l.Name))
			return nil
		}
	}
	memory, _ := readMemory(l.Folder, false) // what nobody can trust names no files to change
	left, err := removeData(l.Folder, nil)
	if err != nil {
		return fmt.Errorf("delete %s: %w", l.Folder, err)
	}
	unregister(l.Folder)
	said := l.Folder + " with its objects and keys"
	if len(left) > 0 {
		said = fmt.Sprintf("its objects and keys in %s, which stays for the sake of %s", l.Folder,
			strings.Join(left, ", "))
	}
	var errs []error
	for _, path := range memory.Kubeconfigs {
		contexts, err := removeEntriesOf(l.Folder, path)
		errs = append(errs, err)
		if len(contexts) > 0 {
			said += fmt.Sprintf("; %s in %s", strings.Join(contexts, ", "), path)
		}
	}
	fmt.Fprintf(s.out, "%s deleted: %s\n", shownName(l.Name), oneLineOf(said))
	return errors.Join(errs...)
}

// refuseEphemeral returns an error if an ephemeral sandbox is running below a data directory.
func refuseEphemeral(dir string) error {
	entries, _ := os.ReadDir(filepath.Join(dir, ephemeralName))
	for _, e := range entries {
		if runs, _ := running(filepath.Join(dir, ephemeralName, e.Name())); runs {
			return fmt.Errorf("the ephemeral sandbox %s is running there; stop it first with "+
				"kinproc stop %s", e.Name(), e.Name())
		}
	}
	return nil
}

// removeData removes what kinproc has written to a data directory, and the directory if nothing
// else is in it. It returns the names of what is left. The caller may hold the directory already.
func removeData(dir string, held *folder) (left []string, err error) {
	private, err := openPrivate(dir, os.Geteuid())
	if err != nil {
		return nil, err
	}
	defer private.close()
	if err := refuseEphemeral(dir); err != nil {
		return nil, err
	}
	release := func() {}
	if held == nil {
		held, err = holdFolder(dir)
		if errors.Is(err, fileutil.ErrLocked) {
			return nil, errors.New("it is in use")
		}
		if err != nil {
			return nil, err
		}
		release = sync.OnceFunc(func() { held.lock.Close() })
		defer release()
	}
	if err := datadir.CheckFree(datadir.Config{Path: dir}); err != nil {
		return nil, errors.New("it is in use by another program")
	}
	for _, name := range datadir.Contents() {
		if name == lockName {
			release() // Windows does not remove open files
		}
		if err := private.root.RemoveAll(name); err != nil {
			return nil, err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if len(left) > 0 {
		return left, nil
	}
	return nil, os.Remove(dir)
}

// removeEntriesOf removes the entries of a data directory from a kubeconfig, and returns the
// names of the contexts.
func removeEntriesOf(directory, path string) (contexts []string, err error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	err = changeKubeconfig(path, func(config *clientcmdapi.Config) error {
		for _, name := range sortedKeys(config.Contexts) {
			m, ok := readMark(config.Contexts[name].Extensions)
			if e := (entries{name, directory}); ok && m.Directory == directory && e.removeFrom(config) {
				contexts = append(contexts, name)
			}
		}
		return nil
	})
	return contexts, err
}
