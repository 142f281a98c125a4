package looptest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// migrate creates a StorageVersionMigration.
func migrate(t *testing.T, c kubernetes.Interface, name, group, resource string) {
	t.Helper()
	workloadtest.Must(c.StoragemigrationV1().StorageVersionMigrations().Create(t.Context(),
		&storagemigrationv1.StorageVersionMigration{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: storagemigrationv1.StorageVersionMigrationSpec{
				Resource: metav1.GroupResource{Group: group, Resource: resource},
			},
		}, metav1.CreateOptions{}))(t)
}

// conditions returns the conditions of a migration in order, one a line.
func conditions(m *storagemigrationv1.StorageVersionMigration) string {
	var lines []string
	for _, c := range m.Status.Conditions {
		lines = append(lines, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(lines, "\n")
}

// watchMigrations begins to watch migrations, before they are created.
func watchMigrations(t *testing.T, c kubernetes.Interface) watch.Interface {
	t.Helper()
	w := workloadtest.Must(c.StoragemigrationV1().StorageVersionMigrations().Watch(t.Context(),
		metav1.ListOptions{}))(t)
	t.Cleanup(w.Stop)
	return w
}

// migrations returns what becomes of the conditions of migrations until each has ended. The
// conditions that kube-controller-manager 1.37.2 writes are the same.
func migrations(t *testing.T, w watch.Interface, names ...string) (states []string) {
	t.Helper()
	waiting := map[string]string{}
	for _, name := range names {
		waiting[name] = ""
	}
	for len(waiting) > 0 {
		m, ok := (<-w.ResultChan()).Object.(*storagemigrationv1.StorageVersionMigration)
		if !ok {
			t.Fatalf("the watch has ended; the last states are %q", waiting)
		}
		last, ours := waiting[m.Name]
		now := conditions(m)
		if !ours || now == last {
			continue
		}
		states = append(states, m.Name+": "+now)
		waiting[m.Name] = now
		if len(m.Status.Conditions) == 2 && m.Status.Conditions[0].Status == metav1.ConditionFalse {
			delete(waiting, m.Name)
		}
	}
	return states
}

// TestStorageVersionMigration stores custom resources in another version, once and once more.
func TestStorageVersionMigration(t *testing.T) {
	t.Parallel()
	s, namespace := servertest.Shared(t)
	c := workloadtest.Must(kubernetes.NewForConfig(s.RESTConfig()))(t)
	objects := dynamic.NewForConfigOrDie(s.RESTConfig())
	const group, crd = "migration.example.com", "widgets.migration.example.com"
	version := func(name, storage string) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: name == storage,
			Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"},
			},
		}
	}
	versions := func(storage string) []apiextensionsv1.CustomResourceDefinitionVersion {
		return []apiextensionsv1.CustomResourceDefinitionVersion{
			version("v1", storage), version("v2", storage),
		}
	}
	servertest.CRDs(t, s, servertest.Objects(&apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: crd},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped, Versions: versions("v1"),
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
		},
	}))
	widgets := objects.Resource(schema.GroupVersionResource{
		Group: group, Version: "v1", Resource: "widgets",
	}).Namespace(namespace)
	for _, name := range []string{"a", "b"} {
		workloadtest.Must(widgets.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/v1", "kind": "Widget", "metadata": map[string]any{"name": name},
		}}, metav1.CreateOptions{}))(t)
	}
	definitions := objects.Resource(apiextensionsv1.SchemeGroupVersion.
		WithResource("customresourcedefinitions"))
	storage := workloadtest.Must(runtime.DefaultUnstructuredConverter.ToUnstructured(
		&apiextensionsv1.CustomResourceDefinition{
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: versions("v2")},
		}))(t)
	spec := storage["spec"].(map[string]any)["versions"]
	patch := workloadtest.Must((&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"spec": map[string]any{"versions": spec},
	}}).MarshalJSON())(t)
	workloadtest.Must(definitions.Patch(t.Context(), crd, types.MergePatchType, patch,
		metav1.PatchOptions{}))(t)

	before := workloadtest.Must(widgets.List(t.Context(), metav1.ListOptions{}))(t)
	w := watchMigrations(t, c)
	migrate(t, c, "widgets-1", group, "widgets")
	migrate(t, c, "widgets-2", group, "widgets")
	var want []string
	for _, name := range []string{"widgets-1", "widgets-2"} {
		const succeeded = "\nSucceeded=True StorageVersionMigrationSucceeded: Migration completed"
		want = append(want,
			name+": Running=True MigrationRunning: The migration is running",
			name+": Running=True MigrationRunning: The migration is running, 2 objects verified migrated"+
				succeeded,
			name+": Running=False MigrationCompleted: Migration completed"+succeeded)
	}
	got := migrations(t, w, "widgets-1", "widgets-2")
	if !slices.Equal(got, want) {
		t.Errorf("the migrations went\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	after := workloadtest.Must(widgets.List(t.Context(), metav1.ListOptions{}))(t)
	for i := range before.Items {
		was, is := before.Items[i].GetResourceVersion(), after.Items[i].GetResourceVersion()
		if was == is {
			t.Errorf("%s was not written", before.Items[i].GetName())
		}
	}
	var definition apiextensionsv1.CustomResourceDefinition
	workloadtest.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(
		workloadtest.Must(definitions.Get(t.Context(), crd, metav1.GetOptions{}))(t).Object, &definition))
	if stored := definition.Status.StoredVersions; len(stored) != 1 || stored[0] != "v2" {
		t.Errorf("the stored versions are %q, want v2", stored)
	}
	last := definition.Status.Conditions[len(definition.Status.Conditions)-1]
	last.LastTransitionTime = metav1.Time{}
	if last != (apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.StorageMigrating, Status: apiextensionsv1.ConditionFalse,
		Reason: "MigrationSucceeded", ObservedGeneration: definition.Generation,
		Message: "The migration has succeeded and the stored versions have been updated",
	}) {
		t.Errorf("the condition of the CRD is %+v", last)
	}
}

func TestStorageVersionMigrationOfBuiltIn(t *testing.T) {
	t.Parallel()
	c, namespace := shared(t)
	workloadtest.Must(c.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
	}, metav1.CreateOptions{}))(t)
	w := watchMigrations(t, c)
	migrate(t, c, "secrets", "", "secrets")
	migrate(t, c, "reviews", "authorization.k8s.io", "subjectaccessreviews")
	migrations(t, w, "secrets", "reviews")
	for name, want := range map[string]string{
		"secrets": "Succeeded=True StorageVersionMigrationSucceeded: Migration completed",
		"reviews": `Failed=True StorageVersionMigrationFailed: resource "authorization.k8s.io/v1, ` +
			`Resource=subjectaccessreviews" does not support discovery operations: [update patch list]`,
	} {
		m := workloadtest.Must(c.StoragemigrationV1().StorageVersionMigrations().Get(t.Context(), name,
			metav1.GetOptions{}))(t)
		if _, last, _ := strings.Cut(conditions(m), "\n"); last != want {
			t.Errorf("%s: %s, want %s", name, last, want)
		}
	}
}

// A resource that is not served may be served soon, so its migration fails after a minute.
func TestTimeOfStorageVersionMigration(t *testing.T) {
	inBubble(t, func(t *testing.T, c kubernetes.Interface, _ func(string)) {
		w := watchMigrations(t, c)
		defer w.Stop()
		migrate(t, c, "none", "nobody.example.com", "widgets")
		start := time.Now()
		migrations(t, w, "none")
		if took := time.Since(start); took < 58*time.Second {
			t.Errorf("the migration failed after %v, want a minute", took)
		}
		const want = "Running=False MigrationCompleted: Migration completed\n" +
			"Failed=True StorageVersionMigrationFailed: resource does not exist in discovery"
		m := workloadtest.Must(c.StoragemigrationV1().StorageVersionMigrations().Get(t.Context(), "none",
			metav1.GetOptions{}))(t)
		if got := conditions(m); got != want {
			t.Errorf("the conditions are\n%s\nwant\n%s", got, want)
		}
	})
}
