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

	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server/cli/internal/output"
	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
	"github.com/kinproc/kinproc/server/cli/internal/settings"
)

func newListCmd(s streams) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all sandboxes of this user, running or stopped",
		Long: `List all sandboxes of this user: those that are running, and those that are stopped with
their data. SINCE is how long a sandbox has been running or stopped. MEMORY is the resident memory of
its process.

  kinproc list
  kinproc list -o json
  kinproc stop NAME
  kinproc delete NAME`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			if err := output.CheckFormat(format, "json"); err != nil {
				return usageError{err}
			}
			all, err := sandbox.OfUser()
			if err != nil {
				return err
			}
			states := stateList{Items: []state{}}
			for _, found := range all {
				states.Items = append(states.Items, describe(found))
			}
			if format == "json" {
				return output.JSON(s.out, states)
			}
			if len(all) == 0 {
				fmt.Fprintln(s.err, "kinproc: there are no sandboxes; start one with kinproc start")
				return nil
			}
			rows := [][]string{{
				"NAME", "STATUS", "VERSION", "KUBERNETES", "ADDRESS", "NODES", "MEMORY", "SINCE", "DIRECTORY",
			}}
			for _, one := range states.Items {
				rows = append(rows, one.columns())
			}
			return output.Table(s.out, rows)
		},
	}
	addFormatFlag(cmd, &format)
	return cmd
}

// addFormatFlag adds the flag of commands that print text or JSON.
func addFormatFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVarP(format, "output", "o", "", "json, or text if empty")
}

// stateList are sandboxes as list and status print them in JSON.
type stateList struct {
	Items []state `json:"items"`
}

// state is a sandbox. Only status says what follows Since.
type state struct {
	Name      string `json:"name"`
	Status    string `json:"status"` // running, stopped or untrusted
	Directory string `json:"directory"`
	Ephemeral bool   `json:"ephemeral,omitempty"`
	// Version is that of kinproc, and Kubernetes the minor version that it behaves as.
	Version    string `json:"version,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`
	URL        string `json:"url,omitempty"`
	PID        int    `json:"pid,omitempty"`
	Nodes      *int   `json:"nodes,omitempty"` // the simulated ones
	// MemoryBytes is the resident memory of the process.
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	// Since is when the sandbox was started or stopped.
	Since *time.Time `json:"since,omitempty"`

	Kubeconfig string             `json:"kubeconfig,omitempty"`
	Dashboard  string             `json:"dashboard,omitempty"`
	Database   *embed.Room        `json:"database,omitempty"`
	Settings   []settings.Setting `json:"settings,omitempty"`
}

func describe(s *sandbox.Sandbox) state {
	one := state{
		Name: s.Name, Status: "stopped", Directory: s.Folder, Ephemeral: s.Ephemeral,
		Version: s.Version, Kubernetes: s.Kubernetes,
	}
	switch r := s.Record; {
	case s.Wrong != nil:
		one.Status = "untrusted"
	case r != nil:
		one.Status, one.Version, one.Kubernetes = "running", r.Version, r.Kubernetes
		one.URL, one.PID, one.Nodes, one.Since = r.URL, r.PID, &r.Nodes, &r.Started
		one.MemoryBytes, _ = residentMemory(r.PID)
	case !s.Ended.IsZero():
		one.Since = &s.Ended
	}
	return one
}

// columns returns the sandbox as a row of a table.
func (s *state) columns() []string {
	const none = "-"
	address, nodes, memory, since := none, none, none, none
	if u, err := url.Parse(s.URL); err == nil && s.URL != "" {
		address = u.Host
	}
	if s.Nodes != nil {
		nodes = strconv.Itoa(*s.Nodes)
	}
	if s.MemoryBytes > 0 {
		memory = fmt.Sprintf("%d MiB", (s.MemoryBytes+1<<19)>>20)
	}
	if s.Since != nil {
		since = duration.HumanDuration(time.Since(*s.Since))
	}
	directory := s.Directory
	if s.Ephemeral {
		directory += " (ephemeral)"
	}
	return []string{
		sandbox.ShownName(s.Name), s.Status, output.Line(s.Version),
		output.Line(cmp.Or(s.Kubernetes, none)), output.Line(address), nodes, memory, since,
		output.Line(directory),
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
