package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/cli/internal/output"
	"github.com/kinproc/kinproc/server/cli/internal/standin"
)

// standIn runs the program of the given name. It returns 1 on failure, as the real programs do.
func standIn(ctx context.Context, s streams, name string, args []string) int {
	var cmd *cobra.Command
	switch name {
	case standin.Kubectl:
		runKubectl(newRealKubectl(s, newKubectlConfig(s), args))
		return 0
	case standin.Etcd:
		cmd = standin.NewEtcdCommand()
	default:
		cmd = standin.NewAPIServerCommand(standin.Emulated(os.Args[0]),
			os.Getenv(standin.ControllersVariable), setLogging, serveStandIn)
	}
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetArgs(args)
	cmd.SetIn(s.in)
	cmd.SetOut(s.out)
	cmd.SetErr(s.err)
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	ctx, leave := standin.WithParent(ctx)
	defer leave()
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(s.err, "Error: %s\n", output.Joined(err))
		return exitFailed
	}
	return 0
}

// serveStandIn is like serve, but as for kube-apiserver, an interruption is never a failure.
func serveStandIn(ctx context.Context, o server.Options, use func(*server.Server) error) error {
	if err := serve(ctx, o, use); !errors.Is(err, errInterrupted) {
		return err
	}
	return nil
}
