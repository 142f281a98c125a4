package definitions_test

import (
	"strings"
	"testing"

	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kinproc/kinproc/chain/core/internal/definitions"
)

func all() map[string]common.OpenAPIDefinition {
	return definitions.GetOpenAPIDefinitions(func(name string) spec.Ref {
		return spec.MustCreateRef("#/definitions/" + name)
	})
}

// A package that is missing from the Makefile's list would show up only at run time, as a server
// that does not start.
func TestEveryReferenceIsDefined(t *testing.T) {
	t.Parallel()
	defs := all()
	for name, def := range defs {
		for _, dep := range def.Dependencies {
			if _, ok := defs[dep]; !ok {
				t.Errorf("%s refers to %s, which has no definition", name, dep)
			}
		}
	}
}

func TestGroupVersionsAreWhole(t *testing.T) {
	t.Parallel()
	defs := all()
	versions := map[string]bool{}
	for name := range defs {
		versions[name[:strings.LastIndex(name, ".")]] = true
	}
	seen := 0
	for gvk, goType := range clientgoscheme.Scheme.AllKnownTypes() {
		pkg, ok := strings.CutPrefix(goType.PkgPath(), "k8s.io/api/")
		if !ok {
			continue
		}
		model := "io.k8s.api." + strings.ReplaceAll(pkg, "/", ".")
		if !versions[model] {
			continue
		}
		seen++
		if _, ok := defs[model+"."+goType.Name()]; !ok {
			t.Errorf("%s has no definition", gvk)
		}
	}
	if seen < 150 {
		t.Errorf("compared %d kinds only: the model names are not what this test expects", seen)
	}
}

func BenchmarkDefinitions(b *testing.B) {
	for b.Loop() {
		all()
	}
}
