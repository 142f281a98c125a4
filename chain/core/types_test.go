package core

import (
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	openapiutil "k8s.io/kube-openapi/pkg/util"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/kinproc/kinproc/chain/core/internal/definitions"
	"github.com/kinproc/kinproc/chain/internal/openapi"
)

// Objects that are not checked against their schema have the same fields as if they were, and those
// that would be refused cannot be compared with others.
func TestUncheckedConversion(t *testing.T) {
	t.Parallel()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	names := map[schema.GroupVersionKind]string{}
	byName := func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) }
	for gvk := range scheme.AllKnownTypes() {
		obj := newObject(t, scheme, gvk)
		_, hasMetadata := obj.(metav1.Object)
		if gvk.Version == runtime.APIVersionInternal || !hasMetadata {
			continue
		}
		// The Eviction of policy/v1beta1 has no definition.
		if gvk.GroupVersion() != (schema.GroupVersion{Group: "policy", Version: "v1beta1"}) {
			names[gvk] = openapiutil.GetCanonicalTypeName(obj)
		}
	}
	_, config := openapi.Configs(definitionNames(scheme), definitions.GetOpenAPIDefinitions,
		definitionsLater)
	types := newLazyTypes(config,
		func() (map[schema.GroupVersionKind]string, error) { return names, nil })
	filler := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(4),
		serializer.NewCodecFactory(scheme))
	compared, refused := 0, 0
	for _, gvk := range slices.SortedFunc(maps.Keys(names), byName) {
		c, err := types.converter(gvk)
		if err != nil {
			t.Fatal(err)
		}
		before := newObject(t, scheme, gvk)
		if _, err := c.ObjectToTyped(before, typed.AllowDuplicates); err != nil {
			t.Fatalf("the first %s: %v", gvk, err)
		}
		for range 50 {
			obj := newObject(t, scheme, gvk)
			filler.Fill(obj)
			obj.GetObjectKind().SetGroupVersionKind(gvk)
			compared++
			checked, checkErr := c.TypeConverter.ObjectToTyped(obj, typed.AllowDuplicates)
			unchecked, err := c.ObjectToTyped(obj, typed.AllowDuplicates)
			if err != nil {
				t.Fatalf("%s: %v", gvk, err)
			}
			live, err := c.ObjectToTyped(before, typed.AllowDuplicates)
			if err != nil {
				t.Fatalf("%s: %v", gvk, err)
			}
			comparison, err := live.Compare(unchecked)
			if (err != nil) != (checkErr != nil) {
				t.Errorf("%s: compared with error %v, and checked with error %v", gvk, err, checkErr)
			}
			if checkErr != nil {
				refused++
				continue
			}
			if want, err := live.Compare(checked); err != nil || comparison.String() != want.String() {
				t.Errorf("%s: got\n%swant %v\n%s", gvk, comparison, err, want)
			}
		}
	}
	if compared < 5000 || refused == 0 {
		t.Errorf("of %d objects, %d were refused", compared, refused)
	}
}

func newObject(t *testing.T, scheme *runtime.Scheme, gvk schema.GroupVersionKind) runtime.Object {
	t.Helper()
	obj, err := scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return obj
}
