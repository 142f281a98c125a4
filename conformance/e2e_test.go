package conformance_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

var (
	e2eProgram = flag.String("e2e", "",
		"path of Kubernetes' e2e.test, which TestPassesEndToEndSpecs runs; if empty, it only reads the list")
	e2eKubectl = flag.String("kubectl", "kubectl", "path of the kubectl that the specs use")
	e2eShards  = flag.Int("shards", 8, "how many processes run specs at the same time")
)

// TestPassesEndToEndSpecs runs the specs of Kubernetes' own end-to-end suite that testdata/e2e.txt
// lists, against a control plane with three simulated nodes. What is not in the list needs
// containers or a network.
func TestPassesEndToEndSpecs(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/e2e.txt")
	if err != nil {
		t.Fatal(err)
	}
	specs := strings.Split(strings.TrimSpace(string(data)), "\n")
	if !slices.IsSorted(specs) || len(slices.Compact(slices.Clone(specs))) != len(specs) {
		t.Error("testdata/e2e.txt is not sorted, or names a spec twice")
	}
	shards := make([][]string, *e2eShards)
	var serial []string
	for i, spec := range specs {
		switch {
		case !strings.HasPrefix(spec, "[sig-"):
			t.Errorf("testdata/e2e.txt: %q is not the name of a spec", spec)
		case strings.Contains(spec, "[Serial]"):
			serial = append(serial, spec)
		default:
			shards[i%len(shards)] = append(shards[i%len(shards)], spec)
		}
	}
	if *e2eProgram == "" {
		return
	}
	s := servertest.Run(t, servertest.Workloads, func(o *server.Options) {
		o.SimulatedNodes = 3
		o.HistoryKept = 5 * time.Minute // as in kube-apiserver: a spec waits until a list has expired
	})
	kubeconfig := servertest.Kubeconfig(t, s.RESTConfig())
	var running sync.WaitGroup
	for _, shard := range shards {
		running.Go(func() { runSpecs(t, kubeconfig, shard) })
	}
	running.Wait()
	runSpecs(t, kubeconfig, serial)
}

// runSpecs runs specs in a process of their own, and reports each that does not pass.
func runSpecs(t *testing.T, kubeconfig string, specs []string) {
	if len(specs) == 0 {
		return
	}
	names := make([]string, len(specs))
	for i, spec := range specs {
		names[i] = regexp.QuoteMeta(spec)
	}
	report := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.CommandContext(t.Context(), *e2eProgram, "--kubeconfig="+kubeconfig,
		"--kubectl-path="+*e2eKubectl, "--provider=skeleton", "--disable-log-dump",
		"--ginkgo.focus="+strings.Join(names, "|"), "--ginkgo.json-report="+report,
		"--ginkgo.timeout=2h", "--ginkgo.no-color")
	output, runErr := cmd.CombinedOutput() // fails if a spec does
	data, err := os.ReadFile(report)
	if err != nil {
		t.Errorf("%v: %v\n%s", runErr, err, output)
		return
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeText, State     string
			Failure                 struct{ Message string }
		}
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		t.Error(err)
		return
	}
	passed := map[string]bool{}
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
			switch spec.State {
			case "passed":
				passed[name] = true
			case "skipped":
			default:
				t.Errorf("%s %s: %s", name, spec.State, spec.Failure.Message)
			}
		}
	}
	for _, spec := range specs {
		if !passed[spec] {
			t.Errorf("%s has not passed", spec)
		}
	}
}
