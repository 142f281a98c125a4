package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server/internal/requests/paths"
)

func newStatusCmd(s streams) *cobra.Command {
	var flags sandboxFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which sandboxes are running in this directory, and how to reach them",
		Long: `Show which sandboxes are running in this directory or the nearest one above, and how to
reach them. kinproc kubectl talks to the first one. The exit code is 1 if none is running.
What the database uses includes old versions of objects.

Below that are the settings that a start can change, with their source: a flag, kinproc.yaml, what
was remembered of earlier starts, or the default. kinproc list shows the sandboxes of other
directories.`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
				fmt.Fprintf(s.out, "  %s\n", sandbox.database(cmd.Context()))
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

// databaseTimeout bounds the question how full the database is.
const databaseTimeout = 2 * time.Second

// database says in a few words how full the database of a running sandbox is.
func (b *sandbox) database(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	room, err := b.room(ctx)
	if err != nil {
		return fmt.Sprintf("database: unknown: %v", err)
	}
	of := ""
	if room.Quota > 0 {
		of = " of " + mebibytes(room.Quota)
	}
	return fmt.Sprintf("database: %s%s in use, in a file of %s", mebibytes(room.Used), of,
		mebibytes(room.File))
}

func (b *sandbox) room(ctx context.Context) (room embed.Room, err error) {
	config, err := clientcmd.NewDefaultClientConfig(*b.config, nil).ClientConfig()
	if err != nil {
		return room, err
	}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return room, err
	}
	answer, err := client.Get().AbsPath(paths.Database).DoRaw(ctx)
	if err != nil {
		return room, err
	}
	return room, json.Unmarshal(answer, &room)
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
