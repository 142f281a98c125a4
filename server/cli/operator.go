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
(CustomResourceDefinition), a controller, a test, and manifests for a cluster.`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.begin(cmd.Context(), s, scaffold.Operator, args[0], "make run")
		},
	}
	o.addFlags(begin.Flags())
	cmd.AddCommand(begin)
	return cmd
}
