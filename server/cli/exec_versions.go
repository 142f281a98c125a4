package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/kinproc/kinproc/server/cli/internal/output"
)

// versionsOf returns the versions of Kubernetes in the value of --kubernetes.
func versionsOf(value string) ([]string, error) {
	if value == "" {
		return nil, nil
	}
	versions := strings.Split(value, ",")
	for i, version := range versions {
		if err := checkVersion(version); err != nil {
			return nil, err
		}
		if slices.Contains(versions[:i], version) {
			return nil, fmt.Errorf("--kubernetes: %s is listed twice", version)
		}
	}
	return versions, nil
}

// A versionResult says how a command ended with one version of Kubernetes.
type versionResult struct {
	version string
	code    int
	took    time.Duration
}

// execEach runs exec once for each version, and prints what came out. Each run has a process of its
// own, because feature gates are shared by a process. Own is the arguments of this exec, which end
// with those of the command.
func execEach(s streams, versions, own, command []string, signals <-chan os.Signal) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	flags := own[:len(own)-len(command)]
	if len(flags) > 0 && flags[len(flags)-1] == "--" {
		flags = flags[:len(flags)-1]
	}
	var results []versionResult
	worst := 0
	for _, version := range versions {
		// the last one of a flag counts
		args := slices.Concat(flags, []string{"--kubernetes=" + version, "--"}, command)
		cmd := exec.Command(program, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = s.in, s.out, s.err
		began := time.Now()
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("run kinproc exec for Kubernetes %s: %w", version, err)
		}
		interrupted, err := attend(cmd, nil, signals)
		exit := exitError{}
		if err != nil && !errors.As(err, &exit) {
			return err
		}
		results = append(results, versionResult{version, exit.code, time.Since(began)})
		worst = max(worst, exit.code)
		if interrupted {
			break
		}
	}
	if err := printVersions(s, results); err != nil {
		return err
	}
	if worst > 0 {
		return exitError{worst}
	}
	return nil
}

func printVersions(s streams, results []versionResult) error {
	// The last line of the command may have no end.
	rows := [][]string{{"\nKUBERNETES", "RESULT", "TIME"}}
	for _, r := range results {
		result := "ok"
		if r.code > 0 {
			result = fmt.Sprintf("exit code %d", r.code)
		}
		rows = append(rows, []string{r.version, result, fmt.Sprintf("%.1f s", r.took.Seconds())})
	}
	return output.Table(s.out, rows)
}
