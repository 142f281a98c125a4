package kubebuilder

import (
	"os"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	greetingsv1 "github.com/kinproc/kinproc/examples/kubebuilder/api/v1"
	"github.com/kinproc/kinproc/server/servertest"
)

// The definition made from a Go type is the one that controller-gen writes for a type without
// markers, and custom resources of the type can be written and read.
func TestDefinitionsFromGoTypes(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	servertest.CRDs(t, s, servertest.GoTypes(
		servertest.GoType{GroupVersion: groupVersion, Object: &Memcached{}},
		servertest.GoType{GroupVersion: greetingsv1.GroupVersion, Object: &greetingsv1.Greeting{}},
	))
	scheme := newScheme()
	for _, add := range []func() error{
		func() error { return apiextensionsv1.AddToScheme(scheme) },
		func() error { return greetingsv1.AddToScheme(scheme) },
	} {
		if err := add(); err != nil {
			t.Fatal(err)
		}
	}
	k, err := client.New(s.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}

	manifest, err := os.ReadFile("config/crd/bases/cache.example.com_memcacheds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want, got apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(manifest, &want); err != nil {
		t.Fatal(err)
	}
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(&want), &got); err != nil {
		t.Fatal(err)
	}
	got.Spec.Conversion = nil // the API server's default
	if !equality.Semantic.DeepEqual(got.Spec, want.Spec) {
		t.Errorf("made %v\nmanifest %v", &got.Spec, &want.Spec)
	}

	m := memcached("default", 3)
	if err := k.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	m.Status.Size = 3
	if err := k.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	var read Memcached
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(m), &read); err != nil ||
		read.Spec != m.Spec || read.Status != m.Status {
		t.Errorf("wrote %v, read %v, %v", m, read, err)
	}
	greeting := &greetingsv1.Greeting{Spec: greetingsv1.GreetingSpec{Name: "world"}}
	greeting.Namespace, greeting.Name = "default", "g"
	if err := k.Create(t.Context(), greeting); err != nil || greeting.Spec.Name != "world" {
		t.Errorf("created %v, %v", greeting, err)
	}
}
