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
		Short: "Tell which sandboxes run in this directory, and where they can be reached",
		Long: `Tell which sandboxes run in this directory or in the nearest one above, and where they can be reached.
The first one is the one that kinproc kubectl talks to. The exit code is 1 if none runs.`,
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
				kept := "everything is kept in " + sandbox.folder
				if r.Ephemeral {
					kept = "nothing is kept"
				}
				fmt.Fprintf(s.out, "%s runs for %s (process %d); %s\n\n  %s\n  %s\n",
					r.Name, duration.HumanDuration(time.Since(r.Started)), r.PID, kept, r.URL, setKubeconfig(r.Kubeconfig))
			}
			if !runs {
				return fmt.Errorf("the sandbox in %s does not run; start it with kinproc start", found[0].folder)
			}
			return nil
		},
	}
	flags.add(cmd)
	return cmd
}
