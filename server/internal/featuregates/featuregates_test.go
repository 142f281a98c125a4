package featuregates_test

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	_ "k8s.io/apiextensions-apiserver/pkg/features" // registers gates, as does the next package
	_ "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/server/internal/featuregates"
)

func gates(t *testing.T) featuregates.Registered {
	t.Helper()
	if err := features.Register(); err != nil {
		t.Fatal(err)
	}
	return featuregates.Registered(utilfeature.DefaultMutableFeatureGate.GetAll())
}

// TestGatesOfKubeAPIServer reads the gates of a kube-apiserver 1.37: name, stage, default, and
// whether the default is locked. Each gate is known. Its default is accepted; the other value is
// accepted, or refused with a reason.
func TestGatesOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("testdata/kube-apiserver-1.37.txt")
	if err != nil {
		t.Fatal(err)
	}
	registered := gates(t)
	var real []string
	for line := range strings.Lines(string(list)) {
		fields := strings.Fields(line)
		name, on, locked := fields[0], fields[2] == "true", len(fields) == 4
		real = append(real, strings.TrimSpace(line))
		if err := registered.Check(map[string]bool{name: on}); err != nil {
			t.Errorf("%s: the default %t: %v", name, on, err)
		}
		err := registered.Check(map[string]bool{name: !on})
		if err != nil && !strings.Contains(err.Error(), "cannot be switched here, because ") {
			t.Errorf("%s=%t: %v gives no reason", name, !on, err)
		}
		if locked && err == nil {
			t.Errorf("%s=%t is accepted, but kube-apiserver has it locked", name, !on)
		}
	}
	if got := featuregates.Table(); !slices.Equal(got, real) {
		t.Errorf("the table is not that of kube-apiserver:\n%s", strings.Join(got, "\n"))
	}
	if n := len(real); n < 250 {
		t.Errorf("%d gates are too few", n)
	}
}

// A gate of the libraries is switched, unless the table says why not. A gate that they do not have
// is not said to be switched.
func TestSwitchedGatesAreThoseOfTheLibraries(t *testing.T) {
	t.Parallel()
	registered := gates(t)
	for _, name := range featuregates.Switched() {
		found := false
		for feature := range registered {
			found = found || string(feature) == name
		}
		if !found {
			t.Errorf("%s is said to be switched, but no library has it", name)
		}
	}
	got := registered.Switches(map[string]bool{"AllAlpha": true, "SchedulerAsyncAPICalls": true})
	for name, want := range map[string]bool{
		"AllAlpha": true, "StorageVersionAPI": false, "CoordinatedLeaderElection": false,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s: %t, %t", name, value, ok)
		}
	}
	if _, ok := got["SchedulerAsyncAPICalls"]; ok {
		t.Error("a gate that the libraries do not know would be set in them")
	}
}

// TestGatesOfKinds checks that the gates that kinds and loops ask are switched, with the default of
// the table.
func TestGatesOfKinds(t *testing.T) {
	t.Parallel()
	registered := gates(t)
	switched := featuregates.Switched()
	for _, gate := range features.Names() {
		if !slices.Contains(switched, string(gate)) {
			t.Errorf("the table does not say that %s is switched", gate)
		}
		spec := registered[gate]
		line := fmt.Sprintf("%s %s %t", gate, cmp.Or(spec.PreRelease, "GA"), spec.Default)
		if !slices.Contains(featuregates.Table(), line) {
			t.Errorf("the table does not have the line %q", line)
		}
	}
}

func TestRefusedGates(t *testing.T) {
	t.Parallel()
	registered := gates(t)
	for _, test := range []struct {
		name string
		on   bool
		want string
	}{
		{"DynamicResourceAllocation", true, ""}, // the DRA suite of Kueue sets these three
		{"DRAExtendedResource", true, ""},
		{"DRAPartitionableDevices", true, ""},
		{"DynamicResourceAllocation", false, "always true in Kubernetes 1.37"},
		{"DRAPartitionableDevices", false, "kinproc always has this feature"},
		{"GenericWorkload", true, "clears its fields"},
		{"WatchListClient", false, "KUBE_FEATURE_WatchListClient"},
		{"SchedulerAsyncAPICalls", true, ""},
		{"OpenAPIEnum", true, "did you mean OpenAPIEnums?"},
		{"dynamicresourceallocation", true, "did you mean DynamicResourceAllocation?"},
		{"Nope", true, `there is no feature "Nope"`},
	} {
		err := registered.Check(map[string]bool{test.name: test.on})
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s=%t: %v", test.name, test.on, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s=%t: the error is %v, not %s", test.name, test.on, err, test.want)
		}
	}
}

func TestIneffectiveGates(t *testing.T) {
	t.Parallel()
	got := featuregates.Ineffective(map[string]bool{
		"SchedulerAsyncAPICalls": true, "GracefulNodeShutdown": true, "EventedPLEG": true,
	})
	want := "EventedPLEG=true has no effect: it is for kubelets, of which there are none"
	if len(got) != 2 || got[0] != want {
		t.Errorf("%q", got)
	}
}
