package servertest

import (
	"strings"
	"testing"
)

// The modules of this test have the versions that go.mod requires, and each function tells the one
// of its module.
func TestOtherVersionsOfModules(t *testing.T) {
	t.Parallel()
	all := modules()
	for _, m := range all {
		if got := m.built(); got != m.version {
			t.Errorf("%s is built in version %q, want %s", m.path, got, m.version)
		}
	}
	if text := otherVersions(all); text != "" {
		t.Errorf("with kinproc's own versions, %q is said", text)
	}
	for i := range all {
		if all[i].path == "k8s.io/utils" {
			all[i].version = "v0.0.0-before"
		}
	}
	text := otherVersions(all)
	if !strings.Contains(text, "go get k8s.io/utils@v0.0.0-before && go mod tidy") ||
		strings.Contains(text, "klog") {
		t.Errorf("with another k8s.io/utils, %q is said", text)
	}
}
