package bootstrap

import (
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestEditsApplyByKey(t *testing.T) {
	t.Parallel()
	add := func(to string) Edit {
		return func(value []byte) []byte { return append(slices.Clone(value), to...) }
	}
	edits := Edits{"services/specs/default/a": add("-one"), "configmaps/*/roots": add("-every")}
	for key, want := range map[string]string{
		"services/specs/default/a":      "x-one",
		"services/specs/default/ab":     "x",
		"configmaps/default/roots":      "x-every",
		"configmaps/kube-system/roots":  "x-every",
		"configmaps/default/more/roots": "x",
		"configmaps/default/other":      "x",
		"secrets/default/roots":         "x",
	} {
		if got := string(edits.Apply(key, []byte("x"))); got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
}

func TestWhatAResetLeaves(t *testing.T) {
	t.Parallel()
	c := &Config{}
	roots := c.rootCertificates()
	identity := c.identity(nil)
	services := APIServices([]schema.GroupVersion{{Version: "v1"}, {Group: "apps", Version: "v1"}})
	b := &Bootstrap{parts: slices.Concat([]Part{roots, services}, identity)}
	snapshot := map[string]bool{"namespaces/kept": true}
	has := func(key string) bool { return snapshot[key] }
	for key, want := range map[string]bool{
		"configmaps/kept/kube-root-ca.crt":                  true,
		"configmaps/gone/kube-root-ca.crt":                  false,
		"configmaps/kept/other":                             false,
		"apiregistration.k8s.io/apiservices/v1.":            true,
		"apiregistration.k8s.io/apiservices/v1.apps":        true,
		"apiregistration.k8s.io/apiservices/v1.example.com": false,
	} {
		if got := b.Always(key, has); got != want {
			t.Errorf("%s always stays: got %t, want %t", key, got, want)
		}
	}
	for key, want := range map[string]bool{
		"leases/kube-system/apiserver-abc": true, "leases/default/apiserver-abc": false,
	} {
		if got := b.Own(key); got != want {
			t.Errorf("%s is own: got %t, want %t", key, got, want)
		}
	}
	edits, err := b.Adopt()
	if err != nil || len(edits) > 0 {
		t.Errorf("without the control loop, %v are edited, %v", slices.Collect(maps.Keys(edits)), err)
	}
}
