package cli

import (
	"github.com/spf13/cobra"

	"github.com/kinproc/kinproc/server/cli/internal/scaffold"
)

func newOperatorCmd(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "operator",
		Short: "Write operators",
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
	cmd.AddCommand(begin)
	return cmd
}
