package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

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
	stamp := ""
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Path == "github.com/kinproc/kinproc" {
		stamp = commit(info.Settings)
	}
	return fmt.Sprintf("kinproc %s%s, Kubernetes %s, %s",
		server.Version(), stamp, server.KubernetesVersion, runtime.Version())
}

// commit returns the commit that a program was built from and the commit's time, in parentheses. It
// returns nothing for a program built outside a checkout, as by go install: its version tells.
func commit(settings []debug.BuildSetting) string {
	var revision, time, modified string
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.time":
			time = ", " + s.Value
		case "vcs.modified":
			if s.Value == "true" {
				modified = ", modified"
			}
		}
	}
	if revision == "" {
		return ""
	}
	return fmt.Sprintf(" (commit %.12s%s%s)", revision, time, modified)
}
