package cli

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
)

func newListCmd(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List all sandboxes of this user, running or stopped",
		Long: `List all sandboxes of this user: those that are running, and those that are stopped with
their data. SINCE is how long a sandbox has been running or stopped. MEMORY is what is resident of
its process.

  kinproc list
  kinproc stop NAME
  kinproc delete NAME`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			all, err := sandboxesOfUser()
			if err != nil {
				return err
			}
			if len(all) == 0 {
				fmt.Fprintln(s.err, "kinproc: there are no sandboxes; start one with kinproc start")
				return nil
			}
			w := tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tSTATUS\tVERSION\tKUBERNETES\tADDRESS\tNODES\tMEMORY\tSINCE\tDIRECTORY")
			for _, l := range all {
				fmt.Fprintln(w, strings.Join(l.columns(), "\t"))
			}
			return w.Flush()
		},
	}
}

func (l listed) columns() []string {
	const none = "-"
	status, version, kubernetes := "stopped", l.Version, l.Kubernetes
	address, nodes, memory, since := none, none, none, none
	switch {
	case l.wrong != nil:
		status = "untrusted"
	case l.record != nil:
		status, version, kubernetes = "running", l.record.Version, l.record.Kubernetes
		nodes = strconv.Itoa(l.record.Nodes)
		if u, err := url.Parse(l.record.URL); err == nil {
			address = u.Host
		}
		if bytes, ok := residentMemory(l.record.PID); ok {
			memory = fmt.Sprintf("%d MiB", (bytes+1<<19)>>20)
		}
		since = duration.HumanDuration(time.Since(l.record.Started))
	case !l.Stopped.IsZero():
		since = duration.HumanDuration(time.Since(l.Stopped))
	}
	directory := l.Folder
	if l.Ephemeral {
		directory += " (ephemeral)"
	}
	return []string{
		shownName(l.Name), status, oneLineOf(version), oneLineOf(cmp.Or(kubernetes, none)),
		oneLineOf(address), nodes, memory, since, oneLineOf(directory),
	}
}

// residentMemory returns how many bytes of memory a process has, where the system has a file for
// that.
func residentMemory(pid int) (bytes int64, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0, false
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err == nil
}
