package featuregates_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	_ "k8s.io/apiextensions-apiserver/pkg/features" // registers gates, as does the next package
	"k8s.io/apimachinery/pkg/util/version"
	_ "k8s.io/apiserver/pkg/server"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/server/internal/featuregates"
)

func gates(t *testing.T, minor string) featuregates.Gates {
	t.Helper()
	if err := features.Register(); err != nil {
		t.Fatal(err)
	}
	of, err := featuregates.Of(version.MustParse("1." + minor))
	if err != nil {
		t.Fatal(err)
	}
	return of
}

// TestGatesOfKubeAPIServer reads the gates of kube-apiserver 1.37 when it emulates each of its
// versions: name, stage, default, and whether the default is locked. Each gate is known, with the
// same values. Its default is accepted; the other value is accepted, or refused with a reason.
func TestGatesOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	names, _, follows := featuregates.Rows()
	if !slices.IsSorted(names) || len(names) < 250 {
		t.Errorf("%d gates, sorted: %t", len(names), slices.IsSorted(names))
	}
	for _, minor := range []string{"34", "35", "36", "37"} {
		list, err := os.ReadFile("testdata/kube-apiserver-1." + minor + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		registered := gates(t, minor)
		var real []string
		for line := range strings.Lines(string(list)) {
			fields := strings.Fields(line)
			name, on, locked := fields[0], fields[2] == "true", len(fields) == 4
			real = append(real, strings.TrimSpace(line))
			if err := registered.Check(map[string]bool{name: on}); err != nil {
				t.Errorf("1.%s: %s: the default %t: %v", minor, name, on, err)
			}
			err := registered.Check(map[string]bool{name: !on})
			if err != nil && !strings.Contains(err.Error(), "cannot be switched here, because ") {
				t.Errorf("1.%s: %s=%t: %v gives no reason", minor, name, !on, err)
			}
			if locked && err == nil {
				t.Errorf("1.%s: %s=%t is accepted, but kube-apiserver has it locked", minor, name, !on)
			}
			if _, ok := slices.BinarySearch(names, name); !ok {
				t.Errorf("the table has no row for %s", name)
			}
			if always, ok := follows[name]; ok && always != on {
				t.Errorf("1.%s: kinproc always has %s=%t", minor, name, always)
			}
		}
		if got := registered.List(); !slices.Equal(got, real) {
			t.Errorf("1.%s: the gates are not those of kube-apiserver:\n%s", minor,
				strings.Join(got, "\n"))
		}
	}
}

// The groups of gates leave out those that cannot be switched.
func TestGroupsOfGates(t *testing.T) {
	t.Parallel()
	got := gates(t, "37").Switches(map[string]bool{"AllAlpha": true})
	for name, want := range map[string]bool{
		"AllAlpha": true, "StorageVersionAPI": false, "CoordinatedLeaderElection": false,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s: %t, %t", name, value, ok)
		}
	}
}

func TestRefusedGates(t *testing.T) {
	t.Parallel()
	registered := gates(t, "37")
	for _, test := range []struct {
		name string
		on   bool
		want string
	}{
		{"DynamicResourceAllocation", true, ""}, // the DRA suite of Kueue sets these three
		{"DRAExtendedResource", true, ""},
		{"DRAPartitionableDevices", true, ""},
		{"DynamicResourceAllocation", false, "always true in Kubernetes 1.37"},
		{"DRAPartitionableDevices", false, ""},
		{"JobManagedBy", false, "always true in Kubernetes 1.37"},
		{"PodDeletionCost", false, "kinproc always has this feature"},
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
	err := gates(t, "34").Check(map[string]bool{"HPAGeneration": true})
	if want := `there is no feature "HPAGeneration" in Kubernetes 1.34`; err == nil || err.Error() != want {
		t.Errorf("the error about a gate that came later is %v, not %s", err, want)
	}
}

func TestIneffectiveGates(t *testing.T) {
	t.Parallel()
	got := gates(t, "37").Ineffective(map[string]bool{
		"SchedulerAsyncAPICalls": true, "GracefulNodeShutdown": true, "EventedPLEG": true,
	})
	want := "EventedPLEG=true has no effect: it is for kubelets, of which there are none"
	if len(got) != 2 || got[0] != want {
		t.Errorf("%q", got)
	}
}
