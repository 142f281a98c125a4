package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server/cli/internal/output"
	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
	"github.com/kinproc/kinproc/server/cli/internal/settings"
	"github.com/kinproc/kinproc/server/internal/requests/paths"
)

func newStatusCmd(s streams) *cobra.Command {
	var flags sandboxFlags
	var format string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which sandboxes are running in this directory, and how to reach them",
		Long: `Show which sandboxes are running in this directory or the nearest one above, and how to
reach them. kinproc kubectl talks to the first one. The exit code is 1 if none is running.
What the database uses includes old versions of objects.

Below that are the settings that a start can change, with their source: a flag, kinproc.yaml, what
was remembered of earlier starts, or the default. With -o json, all that is an object. kinproc list
shows the sandboxes of other directories.`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.CheckFormat(format, "json"); err != nil {
				return usageError{err}
			}
			found, err := flags.Find()
			if err != nil {
				return err
			}
			var running []*sandbox.Sandbox
			for _, one := range found {
				if one.Record != nil && (flags.Name == "" || flags.Name == one.Name) {
					running = append(running, one)
				}
			}
			if len(running) == 0 {
				return found[0].NotRunning()
			}
			if format == "json" {
				return printStates(cmd.Context(), s.out, running)
			}
			for _, one := range running {
				printStatus(cmd.Context(), s.out, one)
			}
			return nil
		},
	}
	flags.add(cmd)
	addFormatFlag(cmd, &format)
	return cmd
}

// printStates prints sandboxes that are running as JSON. What nobody knows is left out.
func printStates(ctx context.Context, w io.Writer, running []*sandbox.Sandbox) error {
	var states stateList
	for _, found := range running {
		one := describe(found)
		one.Kubeconfig, one.Dashboard = found.Record.Kubeconfig, found.Record.Dashboard
		one.Settings = found.Record.Settings
		if room, err := roomOf(ctx, found); err == nil {
			one.Database = &room
		}
		states.Items = append(states.Items, one)
	}
	return output.JSON(w, states)
}

func printStatus(ctx context.Context, w io.Writer, found *sandbox.Sandbox) {
	r := found.Record
	kept := "everything is kept in " + output.Line(found.Folder)
	if r.Ephemeral {
		kept = "nothing is kept"
	}
	fmt.Fprintf(w, "%s has been running for %s (process %d); %s\n\n  %s\n  %s\n",
		sandbox.ShownName(r.Name), duration.HumanDuration(time.Since(r.Started)), r.PID, kept,
		output.Line(r.URL), output.SetKubeconfig(r.Kubeconfig))
	if r.Dashboard != "" {
		fmt.Fprintf(w, "  dashboard, with a link that works once: %s\n", output.Line(r.Dashboard))
	}
	fmt.Fprintf(w, "  %s\n", databaseOf(ctx, found))
	if len(r.Settings) > 0 {
		fmt.Fprintln(w)
		settings.Print(w, r.Settings)
	}
}

// databaseTimeout bounds the question how full the database is.
const databaseTimeout = 2 * time.Second

// databaseOf says in a few words how full the database of a running sandbox is.
func databaseOf(ctx context.Context, found *sandbox.Sandbox) string {
	room, err := roomOf(ctx, found)
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

func roomOf(ctx context.Context, found *sandbox.Sandbox) (room embed.Room, err error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	config, err := clientcmd.NewDefaultClientConfig(*found.Config, nil).ClientConfig()
	if err != nil {
		return room, err
	}
	client, err := rawClient(config)
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
