package controllers

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/component-base/featuregate"

	"github.com/kinproc/kinproc/chain/features"
)

func TestEnabled(t *testing.T) {
	t.Parallel()
	const sa, ca, ns = "serviceaccount-controller", "root-ca-certificate-publisher-controller",
		"namespace-controller"
	for _, c := range []struct {
		spec string
		on   []string
		off  []string
	}{
		{"", []string{sa, ca, ns}, nil},
		{"*", []string{sa, ca, ns}, nil},
		{"-*", nil, []string{sa, ca, ns}},
		{"*,-" + ns, []string{sa, ca}, []string{ns}},
		{"-" + ns + ",*", []string{sa, ca}, []string{ns}},
		{ns, []string{ns}, []string{sa, ca}},
		{"-" + ns, nil, []string{sa, ca, ns}},
		{"-*," + sa, []string{sa}, []string{ca, ns}},
		{"namespace,-" + ns, []string{ns}, []string{sa, ca}},
		{"*,-root-ca-cert-publisher", []string{sa, ns}, []string{ca}},
	} {
		var spec []string
		if c.spec != "" {
			spec = strings.Split(c.spec, ",")
		}
		got, err := Enabled(spec)
		if err != nil {
			t.Errorf("%q: %v", c.spec, err)
		}
		for _, name := range c.on {
			if !slices.Contains(got, name) {
				t.Errorf("%q: %s is off", c.spec, name)
			}
		}
		for _, name := range c.off {
			if slices.Contains(got, name) {
				t.Errorf("%q: %s is on", c.spec, name)
			}
		}
	}
	for _, name := range []string{"nonsense", "-nonsense", ""} {
		if _, err := Enabled([]string{"*", name}); err == nil ||
			!strings.Contains(err.Error(), "--help lists all") {
			t.Errorf("%q: got error %v, want one that says where the names are", name, err)
		}
	}
}

// TestGates lists the loops that kube-controller-manager runs only with a feature gate that can be
// off.
func TestGates(t *testing.T) {
	t.Parallel()
	want := map[string]featuregate.Feature{
		"device-taint-eviction-controller":                               features.DRADeviceTaints,
		"kube-apiserver-serving-clustertrustbundle-publisher-controller": features.ClusterTrustBundle,
		"podcertificaterequest-cleaner-controller":                       features.PodCertificateRequest,
		"storage-version-migrator-controller":                            features.StorageVersionMigrator,
	}
	for _, l := range All() {
		if l.Gate != want[l.Name] {
			t.Errorf("%s: the gate is %q, want %q", l.Name, l.Gate, want[l.Name])
		}
	}
}
