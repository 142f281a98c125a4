package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/cli/internal/develop"
	"github.com/kinproc/kinproc/server/cli/internal/output"
	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
)

// withControlPlane calls run for the Go module in dir with the control plane of a kubeconfig, or
// with an ephemeral one if that is empty, until run returns. kinproc COMMAND init writes such
// modules.
func withControlPlane(
	ctx context.Context, s streams, command, what, dir, kubeconfig string,
	run func(context.Context, develop.Project) error,
) error {
	if err := requireModule(dir, what, command); err != nil {
		return err
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	p := develop.Project{Out: s.out, Err: s.err, Dir: dir}
	if kubeconfig == "" {
		return whileReady(ctx, s, command, func(srv *server.Server, kubeconfig string) error {
			p.Kubeconfig, p.Config = kubeconfig, srv.RESTConfig()
			return run(ctx, p)
		})
	}
	var err error
	if p.Kubeconfig, err = filepath.Abs(kubeconfig); err != nil {
		return err
	}
	if p.Config, err = clientcmd.BuildConfigFromFlags("", p.Kubeconfig); err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	p.Config.QPS = -1 // no rate limit, as for a control plane of its own
	return run(ctx, p)
}

// addOwnFlag adds the flag for the kubeconfig of withControlPlane.
func addOwnFlag(cmd *cobra.Command, kubeconfig *string) {
	cmd.Flags().StringVar(kubeconfig, "kubeconfig", "",
		"kubeconfig of the control plane; if empty, an ephemeral one is started")
}

// requireModule returns an error unless dir has a Go module.
func requireModule(dir, what, command string) error {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	if errors.Is(err, fs.ErrNotExist) {
		return usageError{fmt.Errorf("%s has no go.mod: name the folder of an %s, such as one that "+
			"kinproc %s init wrote", dir, what, command)}
	}
	return err
}

// whileReady starts an ephemeral control plane with a node, says how to reach it, and stops it when
// use returns.
func whileReady(
	ctx context.Context, s streams, name string, use func(srv *server.Server, kubeconfig string) error,
) error {
	// Otherwise the proxies of the control plane log each connection that ends with a program.
	log.SetOutput(io.Discard)
	options := ephemeralOptions()
	options.Log = setLogging(0)
	return serve(ctx, options, func(srv *server.Server) error {
		kubeconfig, err := sandbox.EntriesOf(name, srv.Dir()).Write(srv.Kubeconfig())
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "a control plane is ready:\n\n  %s\n\n", output.SetKubeconfig(kubeconfig))
		return use(srv, kubeconfig)
	})
}
