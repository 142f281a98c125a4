package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
)

func newStatusCmd(s streams) *cobra.Command {
	var flags sandboxFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which sandboxes are running in this directory, and how to reach them",
		Long: `Show which sandboxes are running in this directory or the nearest one above, and how to
reach them. kinproc kubectl talks to the first one. The exit code is 1 if none is running.

Below that are the settings that a start can change, with their source: a flag, kinproc.yaml, what
was remembered of earlier starts, or the default. kinproc list shows the sandboxes of other
directories.`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			found, err := flags.find()
			if err != nil {
				return err
			}
			runs := false
			for _, sandbox := range found {
				r := sandbox.record
				if r == nil || flags.name != "" && flags.name != r.Name {
					continue
				}
				runs = true
				kept := "everything is kept in " + oneLineOf(sandbox.folder)
				if r.Ephemeral {
					kept = "nothing is kept"
				}
				fmt.Fprintf(s.out, "%s has been running for %s (process %d); %s\n\n  %s\n  %s\n",
					shownName(r.Name), duration.HumanDuration(time.Since(r.Started)), r.PID, kept, oneLineOf(r.URL),
					setKubeconfig(r.Kubeconfig))
				if r.Dashboard != "" {
					fmt.Fprintf(s.out, "  dashboard, with a link that works once: %s\n", oneLineOf(r.Dashboard))
				}
				if len(r.Settings) > 0 {
					fmt.Fprintln(s.out)
					printSettings(s.out, r.Settings)
				}
			}
			if !runs && found[0].unknown {
				return found[0].errUnknown()
			}
			if !runs {
				return fmt.Errorf("the sandbox in %s is not running; start it with kinproc start",
					found[0].folder)
			}
			return nil
		},
	}
	flags.add(cmd)
	return cmd
}
