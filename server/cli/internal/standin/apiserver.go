package standin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/flags"
	"github.com/kinproc/kinproc/server/serverflags"
)

// ControllersVariable is the environment variable with the control loops of kube-apiserver, in the
// syntax of --controllers. There are none without it, as in a real kube-apiserver.
const ControllersVariable = "KINPROC_CONTROLLERS"

// Serve starts a control plane, calls use when it is ready, and stops it when use has returned.
type Serve func(ctx context.Context, o server.Options, use func(*server.Server) error) error

// NewAPIServerCommand returns the command of kube-apiserver, which emulates a version of Kubernetes
// unless that is empty. It runs until its context ends. The function log returns the logger for a
// verbosity, at which 0 is nothing.
func NewAPIServerCommand(
	emulated, controllers string, log func(verbosity int) logr.Logger, serve Serve,
) *cobra.Command {
	o := server.Options{
		SecurePort:         6443,
		AuthorizationModes: []string{"AlwaysAllow"},
		DisallowPrivileged: true,
		Controllers:        []string{"-*"},
		EmulatedVersion:    emulated,
	}
	cmd := &cobra.Command{
		Use:   APIServer,
		Short: "Serve the Kubernetes API",
		Long: `This is kinproc under the name of kube-apiserver, with the flags and the defaults of that
program, except that it listens on 127.0.0.1 unless --bind-address says otherwise.

If --etcd-servers leads to kinproc under the name of etcd, everything is kept in memory and is gone
when the program ends. Otherwise it is kept in that etcd.

No control loops run unless ` + ControllersVariable + ` is set: to '*' for all, and a simulated node
for the pods, or to a list as for kinproc start --controllers.`,
		Version:       server.KubernetesVersion,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cmd.SetVersionTemplate("Kubernetes {{.Version}}\n")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return ExplainFlag(err) })
	verbosity := cmd.Flags().IntP("v", "v", 0, "number for the log level verbosity")
	var sections cliflag.NamedFlagSets
	serverflags.Add(&o, &sections)
	for _, set := range sections.FlagSets {
		set.VisitAll(func(f *pflag.Flag) {
			if _, ok := f.Annotations[flags.Sandbox]; !ok {
				cmd.Flags().AddFlag(f)
			}
		})
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if controllers != "" {
			if err := sections.FlagSet("API").Set("controllers", controllers); err != nil {
				return fmt.Errorf("%s: %w", ControllersVariable, err)
			}
			if slices.Contains(o.Controllers, "*") {
				o.SimulatedNodes = 1
			}
		}
		if o.AuthorizationConfigFile != "" && !cmd.Flags().Changed("authorization-mode") {
			o.AuthorizationModes = nil
		}
		if cmd.Flags().Changed("v") {
			o.Log = log(*verbosity + 1)
		} else {
			o.Log = log(0)
		}
		for _, warning := range o.Warnings() {
			cmd.PrintErrln("Warning: " + warning)
		}
		return serveAPI(cmd.Context(), o, serve)
	}
	return cmd
}

// serveAPI runs a control plane until ctx ends.
func serveAPI(ctx context.Context, o server.Options, serve Serve) error {
	if len(o.EtcdServers) == 0 {
		return errors.New("--etcd-servers must be specified")
	}
	if err := errors.Join(o.Validate()...); err != nil {
		return err
	}
	claimed, err := claimEtcd(ctx, o.EtcdServers)
	if err != nil {
		return err
	}
	if claimed != nil {
		o.EtcdServers = nil
	}
	ready := false
	err = serve(ctx, o, func(srv *server.Server) error {
		ready = true
		select {
		case <-ctx.Done():
			return nil
		case <-srv.Failed():
			return srv.Err()
		}
	})
	if !ready {
		err = errors.Join(err, claimed.release(ctx))
	}
	return err
}
