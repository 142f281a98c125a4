package server

import (
	"fmt"
	"testing"

	utilversion "k8s.io/apimachinery/pkg/util/version"
)

// TestVersionInfo compares what /version says with what a kube-apiserver says: it is compatible
// with the minor version before its own.
func TestVersionInfo(t *testing.T) {
	t.Parallel()
	v := newEffectiveVersion()
	if errs := v.Validate(); errs != nil {
		t.Error(errs)
	}
	own, info := utilversion.MustParse(KubernetesVersion), v.Info()
	for _, test := range []struct{ name, got, want string }{
		{"gitVersion", info.GitVersion, KubernetesVersion + "+kinproc"},
		{"version", info.Major + "." + info.Minor, fmt.Sprintf("1.%d", own.Minor())},
		{"emulated version", info.EmulationMajor + "." + info.EmulationMinor,
			fmt.Sprintf("1.%d", own.Minor())},
		{"compatible version", info.MinCompatibilityMajor + "." + info.MinCompatibilityMinor,
			fmt.Sprintf("1.%d", own.Minor()-1)},
	} {
		if test.got != test.want {
			t.Errorf("%s is %s, want %s", test.name, test.got, test.want)
		}
	}
}
