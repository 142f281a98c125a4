package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func TestMain(m *testing.M) {
	if os.Getenv("COMPARE") != "" { // see TestWithoutAssets
		main()
		return
	}
	klog.SetLogger(logr.Discard())
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// The assets are kinproc's own, so the test needs no download.
func TestCompare(t *testing.T) {
	t.Parallel()
	assets, err := exec.CommandContext(t.Context(), "go", "tool", "kinproc", "envtest-assets").Output()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	args := []string{"-rounds", "2", "-objects", "20"}
	if err := run(t.Context(), args, strings.TrimSpace(string(assets)), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	rows := []string{"first start", "start", "first create", "20 creates", "20 gets", "stop"}
	if len(lines) != len(rows)+1 || !strings.Contains(lines[0], "kinproc, in process") {
		t.Fatalf("printed\n%s", &out)
	}
	for i, name := range rows {
		row := regexp.MustCompile(`^ *` + name + `( +\d+\.\d ms){3}$`)
		if !row.MatchString(lines[i+1]) || strings.Contains(lines[i+1], " 0.0 ms") {
			t.Errorf("the row of %s is %q", name, lines[i+1])
		}
	}
}

func TestWithoutAssets(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), self)
	command.Env = append(os.Environ(), "COMPARE=1", "KUBEBUILDER_ASSETS=")
	out, err := command.CombinedOutput()
	if command.ProcessState.ExitCode() != 1 || strings.Count(string(out), "\n") != 1 ||
		!strings.Contains(string(out), "set KUBEBUILDER_ASSETS to a directory") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"more"}, `unknown argument "more"`},
		{[]string{"-rounds", "0"}, "must be at least 1"},
		{[]string{"-objects=-1"}, "must be at least 1"},
	} {
		err := run(t.Context(), test.args, "assets", new(strings.Builder))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %s", test.args, err, test.want)
		}
	}
	err := run(t.Context(), nil, t.TempDir(), new(strings.Builder))
	if err == nil || !strings.Contains(err.Error(), "envtest: start") {
		t.Errorf("empty assets: %v", err)
	}
}
