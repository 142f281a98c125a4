package examples_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// compare runs envtest-compare, which exits with 1 if it fails, and returns what it prints.
func compare(t *testing.T, assets string, args ...string) (stdout, stderr string, failed bool) {
	t.Helper()
	built, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), filepath.Join(built, "envtest-compare"), args...)
	command.Env = append(os.Environ(), "KUBEBUILDER_ASSETS="+assets,
		"KUBEBUILDER_CONTROLPLANE_START_TIMEOUT=2m") // other tests keep the machine busy
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	err = command.Run()
	if code := command.ProcessState.ExitCode(); code != 0 && code != 1 {
		t.Fatalf("%s: %v: %s", command, err, &problems)
	}
	return out.String(), problems.String(), err != nil
}

// The assets are kinproc's own, so the test needs no download.
func TestEnvtestCompare(t *testing.T) {
	t.Parallel()
	assets, err := exec.CommandContext(t.Context(), "go", "tool", "kinproc", "envtest-assets").Output()
	if err != nil {
		t.Fatal(err)
	}
	out, problems, failed := compare(t, strings.TrimSpace(string(assets)),
		"-rounds", "2", "-objects", "20")
	if failed {
		t.Fatal(problems)
	}
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	rows := []string{"first start", "start", "first create", "20 creates", "20 gets", "stop"}
	if len(lines) != len(rows)+1 || !strings.Contains(lines[0], "kinproc, in process") {
		t.Fatalf("printed\n%s", out)
	}
	for i, name := range rows {
		row := regexp.MustCompile(`^ *` + name + `( +\d+\.\d ms){3}$`)
		if !row.MatchString(lines[i+1]) || strings.Contains(lines[i+1], " 0.0 ms") {
			t.Errorf("the row of %s is %q", name, lines[i+1])
		}
	}
}

func TestEnvtestCompareWithoutAssets(t *testing.T) {
	t.Parallel()
	out, problems, failed := compare(t, "")
	if !failed || out != "" || strings.Count(problems, "\n") != 1 ||
		!strings.Contains(problems, "set KUBEBUILDER_ASSETS to a directory") {
		t.Errorf("failed: %t, %s%s", failed, out, problems)
	}
}

func TestEnvtestCompareRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"more"}, `unknown argument "more"`},
		{[]string{"-rounds", "0"}, "must be at least 1"},
		{[]string{"-objects=-1"}, "must be at least 1"},
	} {
		_, problems, failed := compare(t, "assets", test.args...)
		if !failed || !strings.Contains(problems, test.want) {
			t.Errorf("%q: failed: %t, %s, want %s", test.args, failed, problems, test.want)
		}
	}
	_, problems, failed := compare(t, t.TempDir())
	if !failed || !strings.Contains(problems, "envtest: start") {
		t.Errorf("empty assets: failed: %t, %s", failed, problems)
	}
}
