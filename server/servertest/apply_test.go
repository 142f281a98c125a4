package servertest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"

	"github.com/kinproc/kinproc/chain/fault"
	"github.com/kinproc/kinproc/server/servertest"
)

var crates = schema.GroupVersionResource{
	Group: "shared.example.com", Version: "v1", Resource: "crates",
}

func object(apiVersion, kind, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name},
	}}
}

func eventually(t *testing.T, try func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			last = try(ctx)
			return last == nil, nil
		})
	if err != nil {
		t.Fatal(last)
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	c, namespace := servertest.Shared(t)
	other := servertest.Namespace(t, c)

	dir := t.TempDir()
	for name, content := range map[string]string{
		"b.yml": "# nothing\n---\n" + definition("apply.example.com", "Box", "v1"),
		"c.json": `{"apiVersion": "apply.example.com/v1", "kind": "Box",
			"metadata": {"name": "b"}}`,
		"a.yaml":             "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: old}\n",
		"kustomization.yaml": "resources: [a.yaml]",
		"notes.txt":          "not a manifest",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fsys := fstest.MapFS{"list.yaml": {Data: []byte(`
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: l, namespace: ` + other + `}}
- {apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {k: v}}
`)}}
	stored := servertest.Apply(t, c, namespace,
		servertest.Files(dir),
		servertest.FS(fsys),
		servertest.YAML("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: new}"),
		servertest.Objects(
			&corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "svc"},
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
			},
			object("apply.example.com/v1", "Box", "u"),
		))
	want := []struct{ kind, namespace, name string }{
		{"ConfigMap", namespace, "a"},
		{"CustomResourceDefinition", "", "boxs.apply.example.com"},
		{"Box", namespace, "b"},
		{"ConfigMap", other, "l"},
		{"Secret", namespace, "s"},
		{"ConfigMap", namespace, "a"},
		{"Service", namespace, "svc"},
		{"Box", namespace, "u"},
	}
	if len(stored) != len(want) {
		t.Fatalf("%d objects, want %d: %v", len(stored), len(want), stored)
	}
	for i, w := range want {
		u := stored[i]
		if u.GetKind() != w.kind || u.GetNamespace() != w.namespace || u.GetName() != w.name ||
			u.GetUID() == "" {
			t.Errorf("object %d: %v, want %v", i, u, w)
		}
	}
	configMaps := kubernetes.NewForConfigOrDie(c.RESTConfig()).CoreV1().ConfigMaps(namespace)
	if a, err := configMaps.Get(t.Context(), "a", metav1.GetOptions{}); err != nil ||
		a.Data["k"] != "new" {
		t.Errorf("applied twice: %v, %v", a, err)
	}
}

func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	c, namespace := servertest.Shared(t)
	for _, test := range []struct {
		source servertest.Source
		want   string
	}{
		{servertest.YAML(""), "the sources are empty"},
		{servertest.YAML("a: b"), "no kind"},
		{servertest.YAML("---\na: b\n---\n\t"), "document 2"},
		{
			servertest.YAML("a: &a " + strings.Repeat("b", 100_000) + "\nc: [" +
				strings.Repeat("*a, ", 100) + "]"), "document 1: the aliases in a YAML document of ",
		},
		{servertest.Files("absent"), "absent: "},
		{servertest.Source{}, "a zero Source"},
		{servertest.YAML("apiVersion: x.example.com/v1\nkind: X\nmetadata: {name: x}"),
			"X x: there is no such kind in x.example.com/v1"},
		{servertest.YAML("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: A}"), "Invalid value"},
		{servertest.Objects(nameless{&corev1.Pod{}}), "no apiVersion and kind"},
	} {
		run(func(t *fake) { servertest.Apply(t, c, namespace, test.source) }).wantFailure(t, test.want)
	}
}

// nameless is a type of object that no scheme knows.
type nameless struct{ *corev1.Pod }

// A cluster that outlives the test is left as it was, except for what had already existed.
func TestApplyCleansUp(t *testing.T) {
	t.Parallel()
	shared, namespace := servertest.Shared(t)
	configMaps := kubernetes.NewForConfigOrDie(shared.RESTConfig()).CoreV1().ConfigMaps(namespace)
	_, err := configMaps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "before"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := servertest.ForConfig(shared.RESTConfig())
	inner := run(func(f *fake) {
		servertest.Apply(f, c, namespace, servertest.YAML(`
apiVersion: v1
kind: ConfigMap
metadata: {name: before}
data: {changed: "yes"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: new}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: deleted}
`))
		if err := configMaps.Delete(t.Context(), "deleted", metav1.DeleteOptions{}); err != nil {
			f.Fatalf("%v", err)
		}
	})
	if inner.failed {
		t.Errorf("%s", &inner.output)
	}
	if _, err := configMaps.Get(t.Context(), "new", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("created by the test: %v, want not found", err)
	}
	before, err := configMaps.Get(t.Context(), "before", metav1.GetOptions{})
	if err != nil || before.Data["changed"] != "yes" {
		t.Errorf("created before the test: %v, %v", before, err)
	}
}

func TestCRDs(t *testing.T) {
	t.Parallel()
	c, namespace := servertest.Shared(t)
	var sources []servertest.Source
	kinds := []string{"Ant", "Bee", "Cat", "Dog", "Eel", "Fox", "Gnu", "Hen"}
	for _, kind := range kinds {
		sources = append(sources, servertest.YAML(definition("crds.example.com", kind, "v1")))
	}
	// Other objects are ignored.
	sources = append(sources, servertest.YAML("resources: [a.yaml]"))
	servertest.CRDs(t, c, sources...)

	// Clients that look at discovery just once find the kinds, and resources can be created.
	served := discovery.NewDiscoveryClientForConfigOrDie(c.RESTConfig())
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(served))
	client := dynamic.NewForConfigOrDie(c.RESTConfig())
	create := func(version, kind, name string) {
		t.Helper()
		mapping, err := mapper.RESTMapping(
			schema.GroupKind{Group: "crds.example.com", Kind: kind}, version)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Resource(mapping.Resource).Namespace(namespace).Create(t.Context(),
			object("crds.example.com/"+version, kind, name), metav1.CreateOptions{})
		if err != nil {
			t.Error(err)
		}
	}
	for _, kind := range kinds {
		create("v1", kind, "one")
	}

	// A CRD is replaced.
	servertest.CRDs(t, c, servertest.YAML(definition("crds.example.com", "Ant", "v1", "v2")))
	mapper.Reset()
	create("v2", "Ant", "two")
}

func TestCRDsFail(t *testing.T) {
	t.Parallel()
	c, _ := servertest.Shared(t)
	servertest.CRDs(t, c, servertest.YAML(definition("conflict.example.com", "Twin", "v1")))
	conflicting := strings.Replace(definition("conflict.example.com", "Tw", "v1"),
		"kind: Tw}", "kind: Twin}", 1)
	for _, test := range []struct{ text, want string }{
		{"apiVersion: v1\nkind: Pod", "no CustomResourceDefinition"},
		{conflicting, "its names are not accepted"},
		{strings.Replace(conflicting, "scope: Namespaced", "scope: None", 1), "spec.scope"},
	} {
		source := servertest.YAML(test.text)
		run(func(t *fake) { servertest.CRDs(t, c, source) }).wantFailure(t, test.want)
	}
}

// Of two definitions of a CRD, the last one counts.
func TestCRDTwice(t *testing.T) {
	t.Parallel()
	const with = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: twins.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: twins, kind: Twin}
  versions:
  - {name: v1, served: %t, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
`
	s := servertest.Run(t)
	servertest.CRDs(t, s,
		servertest.YAML(fmt.Sprintf(with, true)+"---\n"+fmt.Sprintf(with, false)))
}

// A CRD whose names were refused can be corrected, though a read after that still shows the
// refusal.
func TestCRDsCorrected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := servertest.Run(t, servertest.InBubble)
		servertest.CRDs(t, s, servertest.YAML(definition("conflict.example.com", "Twin", "v1")))
		other := definition("conflict.example.com", "Tw", "v1")
		refused := servertest.YAML(strings.Replace(other, "kind: Tw}", "kind: Twin}", 1))
		run(func(t *fake) { servertest.CRDs(t, s, refused) }).
			wantFailure(t, "its names are not accepted")
		servertest.Fault(t, s, fault.Rule{ // it skips the read whose version the correction has
			Verb: "get", Resource: "customresourcedefinitions", Skip: 1, Times: 1,
		}, fault.Freeze())
		servertest.CRDs(t, s, servertest.YAML(other))
	})
}
