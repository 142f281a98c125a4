package cli

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kinproc/kinproc/server/cli/internal/output"
	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
)

func newListCmd(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List all sandboxes of this user, running or stopped",
		Long: `List all sandboxes of this user: those that are running, and those that are stopped with
their data. SINCE is how long a sandbox has been running or stopped. MEMORY is the resident memory of
its process.

  kinproc list
  kinproc stop NAME
  kinproc delete NAME`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			all, err := sandbox.OfUser()
			if err != nil {
				return err
			}
			if len(all) == 0 {
				fmt.Fprintln(s.err, "kinproc: there are no sandboxes; start one with kinproc start")
				return nil
			}
			rows := [][]string{{
				"NAME", "STATUS", "VERSION", "KUBERNETES", "ADDRESS", "NODES", "MEMORY", "SINCE", "DIRECTORY",
			}}
			for _, found := range all {
				rows = append(rows, columnsOf(found))
			}
			return output.Table(s.out, rows)
		},
	}
}

func columnsOf(s *sandbox.Sandbox) []string {
	const none = "-"
	status, version, kubernetes := "stopped", s.Version, s.Kubernetes
	address, nodes, memory, since := none, none, none, none
	switch {
	case s.Wrong != nil:
		status = "untrusted"
	case s.Record != nil:
		status, version, kubernetes = "running", s.Record.Version, s.Record.Kubernetes
		nodes = strconv.Itoa(s.Record.Nodes)
		if u, err := url.Parse(s.Record.URL); err == nil {
			address = u.Host
		}
		if bytes, ok := residentMemory(s.Record.PID); ok {
			memory = fmt.Sprintf("%d MiB", (bytes+1<<19)>>20)
		}
		since = duration.HumanDuration(time.Since(s.Record.Started))
	case !s.Ended.IsZero():
		since = duration.HumanDuration(time.Since(s.Ended))
	}
	directory := s.Folder
	if s.Ephemeral {
		directory += " (ephemeral)"
	}
	return []string{
		sandbox.ShownName(s.Name), status, output.Line(version), output.Line(cmp.Or(kubernetes, none)),
		output.Line(address), nodes, memory, since, output.Line(directory),
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
