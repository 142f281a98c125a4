package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/cli/internal/output"
	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
	"github.com/kinproc/kinproc/server/internal/plainfile"
	"github.com/kinproc/kinproc/server/internal/requests/paths"
)

func newSnapshotCmd(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save the state of a control plane in a file",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSnapshotSaveCmd(s))
	return cmd
}

func newSnapshotSaveCmd(s streams) *cobra.Command {
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "save FILE",
		Short: "Save all objects of a running control plane in a file",
		Long: `Save all objects of a running control plane in a file, secrets included. The file has
etcd's format. kinproc start --from and kinproc reset take it, and so does etcdutl.

  kinproc snapshot save before.db
  kinproc kubectl apply -f experiment.yaml
  kinproc reset before.db`,
		Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := sandbox.ClientConfig(kubeconfig)
			if err != nil {
				return err
			}
			client, err := rawClient(config)
			if err != nil {
				return err
			}
			size, err := saveSnapshot(cmd.Context(), client, moment{}, args[0])
			if err != nil {
				return fmt.Errorf("save a snapshot: %w", err)
			}
			fmt.Fprintf(s.out, "saved in %s (%d KiB)\n", args[0], (size+1023)/1024)
			return nil
		},
	}
	addKubeconfigFlag(cmd, &kubeconfig)
	return cmd
}

func newResetCmd(s streams) *cobra.Command {
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "reset FILE",
		Short: "Make the objects of a running control plane those of a snapshot",
		Long: `Make the objects of a running control plane those of a snapshot, in one step. The file was
written by kinproc snapshot save, or by etcdctl snapshot save. Clients stay connected, and their
watches get the difference. Keys and certificates stay.

  kinproc reset before.db`,
		Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := readSnapshot(args[0]); err != nil { // refuse it here, with its name
				return err
			}
			config, err := sandbox.ClientConfig(kubeconfig)
			if err != nil {
				return err
			}
			client, err := rawClient(config)
			if err != nil {
				return err
			}
			file, err := plainfile.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			if err := client.Post().AbsPath(paths.Reset).Body(io.Reader(file)).
				SetHeader("Content-Type", "application/octet-stream").Do(cmd.Context()).Error(); err != nil {
				return fmt.Errorf("reset: %w", err)
			}
			fmt.Fprintf(s.out, "reset to %s\n", args[0])
			return nil
		},
	}
	addKubeconfigFlag(cmd, &kubeconfig)
	return cmd
}

func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError{fmt.Errorf("%s requires the name of a file (see %[1]s --help)", cmd.CommandPath())}
	}
	return nil
}

// rawClient returns a client for non-resource URLs.
func rawClient(config *rest.Config) (*rest.RESTClient, error) {
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return rest.UnversionedRESTClientFor(config)
}

// saveSnapshot writes a snapshot to a file, which others cannot read. If that fails, an existing
// file stays as it was.
func saveSnapshot(
	ctx context.Context, client *rest.RESTClient, at moment, name string,
) (size int64, err error) {
	stream, err := at.of(client).Stream(ctx)
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	file, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return 0, err
	}
	size, err = io.Copy(file, stream)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		_, err = readSnapshot(file.Name()) // the connection may have broken
	}
	if err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		return 0, errors.Join(err, os.Remove(file.Name()))
	}
	return size, nil
}

// readSnapshot reads a snapshot from a file. The error names the file.
func readSnapshot(name string) (*server.Snapshot, error) {
	const written = "kinproc snapshot save FILE writes one"
	file, err := plainfile.Open(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no snapshot %s; %s", name, written)
	case errors.Is(err, plainfile.ErrNotRegular):
		return nil, fmt.Errorf("%s is not a file, so it is not a snapshot; %s", name, written)
	case err != nil:
		return nil, output.Unreadable(name, err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil {
		return nil, output.Unreadable(name, err)
	} else if info.Size() == 0 {
		return nil, fmt.Errorf("%s is empty, so it is not a snapshot; %s", name, written)
	}
	snapshot, err := server.ReadSnapshot(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %s; it must be whole and come from kinproc snapshot save or "+
			"etcdctl snapshot save", name, strings.TrimPrefix(err.Error(), "read snapshot: "))
	}
	return snapshot, nil
}
