package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kinproc/kinproc/server/cli/internal/develop"
	"github.com/kinproc/kinproc/server/cli/internal/scaffold"
)

func newOperatorCmd(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "operator",
		Short: "Write and run operators",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var o scaffolding
	begin := &cobra.Command{
		Use:   "init NAME",
		Short: "Write the Go module of an operator, in a new folder NAME",
		Long: `Write the Go module of an operator, in a new folder NAME: the types of a kind, its definition
(CustomResourceDefinition), a controller, a test, and manifests for a cluster.

The controller is made with client-go, or with --controller-runtime. With --webhooks too, the
operator has admission webhooks.

  kinproc operator init greeter --kind=Greeting --controller-runtime`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.begin(cmd.Context(), s, scaffold.Operator, args[0], "make run")
		},
	}
	o.addFlags(begin.Flags())
	begin.Flags().BoolVar(&o.project.ControllerRuntime, "controller-runtime", false,
		"make the controller with controller-runtime")
	begin.Flags().BoolVar(&o.project.Webhooks, "webhooks", false,
		"with controller-runtime: add a defaulting and a validating webhook")
	cmd.AddCommand(begin, newOperatorRunCmd(s))
	return cmd
}

func newOperatorRunCmd(s streams) *cobra.Command {
	var kubeconfig string
	var own []string // the operator's arguments
	cmd := &cobra.Command{
		Use:   "run [DIR] [-- ARGUMENT...]",
		Short: "Build and run an operator, and again after each change",
		Long: `Build the operator in DIR, or in the working directory, and run it with an ephemeral control
plane, or with the one of --kubeconfig. After a change of a Go file or of a manifest, build and run
it again; the objects stay. Ctrl-C stops everything.

Before each start, the definitions in config/crd.yaml, or in config/crd/bases, are installed. They
stay on the control plane of --kubeconfig. If there is a config/webhook.yaml, or config/webhook, the
webhooks there are sent to the operator, which gets the flags --webhook-host, --webhook-port and
--webhook-cert-dir. The program is that of the folder cmd if there is no main.go. What follows -- is
for the operator.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); n >= 0 {
				args, own = args[:n], args[n:]
			}
			return atMostOneFolder(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := folderOf(args[:len(args)-len(own)])
			return withControlPlane(cmd.Context(), s, "operator", "operator", dir, kubeconfig,
				func(ctx context.Context, p develop.Project) error {
					return develop.Operator{Project: p, Args: own}.Run(ctx)
				})
		},
	}
	addOwnFlag(cmd, &kubeconfig)
	return cmd
}
