package server

import (
	"fmt"
	"strings"
	"testing"

	utilversion "k8s.io/apimachinery/pkg/util/version"
)

// TestVersionInfo compares what /version says with what a kube-apiserver says that emulates each of
// its versions: it is compatible with the minor version before, if that can be emulated too.
func TestVersionInfo(t *testing.T) {
	t.Parallel()
	versions := EmulatedVersions()
	own := utilversion.MustParse(KubernetesVersion)
	if newest := fmt.Sprintf("1.%d", own.Minor()); versions[len(versions)-1] != newest {
		t.Errorf("the newest version is %v, not %s", versions, newest)
	}
	for i, version := range versions {
		v := newEffectiveVersion(utilversion.MustParse(version))
		if errs := v.Validate(); errs != nil {
			t.Error(errs)
		}
		info := v.Info()
		for _, test := range []struct{ name, got, want string }{
			{"gitVersion", info.GitVersion, KubernetesVersion + "+kinproc"},
			{"version", info.Major + "." + info.Minor, fmt.Sprintf("1.%d", own.Minor())},
			{"emulated version", info.EmulationMajor + "." + info.EmulationMinor, version},
			{"compatible version", info.MinCompatibilityMajor + "." + info.MinCompatibilityMinor,
				versions[max(i-1, 0)]},
		} {
			if test.got != test.want {
				t.Errorf("as %s, %s is %s, want %s", version, test.name, test.got, test.want)
			}
		}
	}
}

// A process has servers of one version: that of the first.
func TestVersionOfTheProcess(t *testing.T) {
	t.Parallel()
	if _, err := New(Options{}); err != nil {
		t.Fatal(err)
	}
	_, err := New(Options{EmulatedVersion: "1.36"})
	if want := "Options.EmulatedVersion: a server of Kubernetes 1.37 was started in this process"; err == nil ||
		!strings.HasPrefix(err.Error(), want) {
		t.Errorf("the error is %v, not %q…", err, want)
	}
	if _, err := New(Options{EmulatedVersion: "kube=1.37"}); err != nil {
		t.Error(err)
	}
}
