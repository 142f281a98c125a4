package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/kinproc/kinproc/server"
)

func newVersionCmd(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of kinproc, of the Kubernetes API that it serves, and of Go",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(s.out, versions())
			return err
		},
	}
}

// versions returns the versions of kinproc, of the Kubernetes API that it serves, and of Go.
func versions() string {
	return fmt.Sprintf("kinproc %s, Kubernetes %s, %s",
		server.Version(), server.KubernetesVersion, runtime.Version())
}
