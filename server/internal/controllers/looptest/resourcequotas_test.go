package looptest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

func resourceQuantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// resourceQuotasNamespace is a namespace with quotas.
type resourceQuotasNamespace struct {
	*testing.T
	client kubernetes.Interface
	name   string
}

func resourceQuotasShared(t *testing.T) resourceQuotasNamespace {
	t.Helper()
	client, name := shared(t)
	return resourceQuotasNamespace{t, client, name}
}

// resourceQuotasIn returns a namespace, which may have been created before.
func resourceQuotasIn(
	t *testing.T, client kubernetes.Interface, name string,
) resourceQuotasNamespace {
	t.Helper()
	_, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		workloadtest.OK(t, err)
	}
	return resourceQuotasNamespace{t, client, name}
}

func (n resourceQuotasNamespace) quota(name string, spec corev1.ResourceQuotaSpec) {
	n.Helper()
	workloadtest.Must(n.client.CoreV1().ResourceQuotas(n.name).Create(n.Context(),
		&corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec,
		}, metav1.CreateOptions{}))(n)
}

// used waits until something is used of a quota.
func (n resourceQuotasNamespace) used(name string, pairs ...string) {
	n.Helper()
	want := resourceQuantities(pairs...)
	began := time.Now()
	workloadtest.Await(n, fmt.Sprint(name, " uses ", pairs),
		func(ctx context.Context) (*corev1.ResourceQuota, error) {
			return n.client.CoreV1().ResourceQuotas(n.name).Get(ctx, name, metav1.GetOptions{})
		}, func(q *corev1.ResourceQuota) bool {
			return (q.Status.Used != nil || len(want) == 0) && quota.Equals(q.Status.Used, want) &&
				quota.Equals(q.Status.Hard, q.Spec.Hard)
		})
	n.Logf("%s: %v after %v", name, pairs, time.Since(began).Round(time.Millisecond))
}

func (n resourceQuotasNamespace) pod(name string, change func(*corev1.PodSpec)) error {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false),
			Containers:                   []corev1.Container{{Name: "c", Image: "i"}},
		},
	}
	if change != nil {
		change(&p.Spec)
	}
	_, err := n.client.CoreV1().Pods(n.name).Create(n.Context(), p, metav1.CreateOptions{})
	return err
}

func TestResourceQuotaUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := servertest.Run(t, func(o *server.Options) { o.DataDir = dir })
	client, ctx := workloadtest.Client(t, s), t.Context()
	n := resourceQuotasIn(t, client, "n")
	for _, name := range []string{"before", "later"} {
		if err := n.pod(name, func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests = resourceQuantities("cpu", "100m")
		}); err != nil {
			t.Fatal(err)
		}
	}
	n.quota("q", corev1.ResourceQuotaSpec{Hard: resourceQuantities("pods", "5", "requests.cpu", "1",
		"count/deployments.apps", "2", "services", "3", "secrets", "10")})
	n.quota("best-effort", corev1.ResourceQuotaSpec{
		Hard:   resourceQuantities("pods", "5"),
		Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort},
	})
	n.used("q", "pods", "2", "requests.cpu", "200m", "count/deployments.apps", "0", "services", "0",
		"secrets", "0")
	n.used("best-effort", "pods", "0")
	if _, err := client.CoreV1().Secrets("n").Create(ctx,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.used("q", "pods", "2", "requests.cpu", "200m", "count/deployments.apps", "0", "services", "0",
		"secrets", "1")
	// A pod that has ended uses nothing, and neither does one that is gone.
	if _, err := client.CoreV1().Pods("n").Patch(ctx, "before", types.MergePatchType,
		[]byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	n.used("q", "pods", "1", "requests.cpu", "100m", "count/deployments.apps", "0", "services", "0",
		"secrets", "1")
	if err := client.CoreV1().Pods("n").Delete(ctx, "later", metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
	}); err != nil {
		t.Fatal(err)
	}
	n.used("q", "pods", "0", "requests.cpu", "0", "count/deployments.apps", "0", "services", "0",
		"secrets", "1")
	if _, err := client.CoreV1().ResourceQuotas("n").Patch(ctx, "q", types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/spec/hard","value":{"secrets":"7","count/pods":"9"}}]`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	n.used("q", "secrets", "1", "count/pods", "1")

	// What is deleted while the server does not count is noticed when it does again.
	workloadtest.OK(t, s.Stop(ctx))
	off := servertest.Run(t, servertest.WithoutControllers,
		func(o *server.Options) { o.DataDir = dir })
	workloadtest.OK(t, workloadtest.Client(t, off).CoreV1().Secrets("n").Delete(ctx, "s",
		metav1.DeleteOptions{}))
	workloadtest.OK(t, off.Stop(ctx))
	s = servertest.Run(t, func(o *server.Options) { o.DataDir = dir })
	resourceQuotasIn(t, workloadtest.Client(t, s), "n").used("q", "secrets", "0", "count/pods", "1")
}

// TestResourceQuotaIsNeverExceeded has more creators than a quota allows, while the quota is
// counted all the time.
func TestResourceQuotaIsNeverExceeded(t *testing.T) {
	t.Parallel()
	n := resourceQuotasShared(t)
	configMaps, ctx := n.client.CoreV1().ConfigMaps(n.name), t.Context()
	n.quota("q", corev1.ResourceQuotaSpec{
		Hard: resourceQuantities("pods", "10", "count/configmaps", "3"),
	})
	n.used("q", "pods", "0", "count/configmaps", "1") // kube-root-ca.crt
	var created atomic.Int32
	var running sync.WaitGroup
	for i := range 32 {
		running.Go(func() {
			for j := range 3 {
				err := n.pod(fmt.Sprintf("p%d-%d", i, j), nil)
				if err == nil {
					created.Add(1)
				} else if !apierrors.IsForbidden(err) && !apierrors.IsConflict(err) {
					t.Error(err)
				}
			}
		})
	}
	// Deletions have the quota counted.
	for range 20 {
		m, err := configMaps.Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"}}, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) || apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		workloadtest.OK(t, configMaps.Delete(ctx, m.Name, metav1.DeleteOptions{}))
	}
	running.Wait()
	if n := created.Load(); n != 10 {
		t.Errorf("%d pods were created, want 10", n)
	}
	n.used("q", "pods", "10", "count/configmaps", "1")
}

func TestResourceQuotaOfCustomResources(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	client, ctx := workloadtest.Client(t, s), t.Context()
	n := resourceQuotasIn(t, client, "n")
	n.quota("q", corev1.ResourceQuotaSpec{Hard: resourceQuantities("count/widgets.example.com", "1")})
	n.used("q")
	servertest.CRDs(t, s, servertest.Objects(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "kind": "Widget"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}))
	n.used("q", "count/widgets.example.com", "0")
	widgets := dynamic.NewForConfigOrDie(s.RESTConfig()).Resource(schema.GroupVersionResource{
		Group: "example.com", Version: "v1", Resource: "widgets",
	}).Namespace("n")
	widget := func(name string) error {
		_, err := widgets.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name},
		}}, metav1.CreateOptions{})
		return err
	}
	if err := widget("a"); err != nil {
		t.Fatal(err)
	}
	if err := widget("b"); !apierrors.IsForbidden(err) {
		t.Errorf("a second widget: %v", err)
	}
	if err := widgets.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n.used("q", "count/widgets.example.com", "0")
	if err := widget("c"); err != nil {
		t.Error(err)
	}

	// Objects are still followed after a reset.
	n.quota("built-in", corev1.ResourceQuotaSpec{Hard: resourceQuantities("count/podtemplates", "1")})
	n.used("built-in", "count/podtemplates", "0")
	n.used("q", "count/widgets.example.com", "1")
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	resourceQuotasIn(t, client, "undone") // a reset that changes nothing does nothing
	if err := s.Reset(ctx, snapshot); err != nil {
		t.Fatal(err)
	}
	if err := widgets.Delete(ctx, "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().PodTemplates("n").Create(ctx, &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "i"}},
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().PodTemplates("n").Delete(ctx, "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n.used("q", "count/widgets.example.com", "0")
	n.used("built-in", "count/podtemplates", "0")
}

// TestResourceQuotaTwoWriters has somebody else write the status of a quota, and quotas that are
// deleted and created again at once.
func TestResourceQuotaTwoWriters(t *testing.T) {
	t.Parallel()
	n, ctx := resourceQuotasShared(t), t.Context()
	quotas := n.client.CoreV1().ResourceQuotas(n.name)
	n.secret("before")
	n.quota("q", corev1.ResourceQuotaSpec{Hard: resourceQuantities("secrets", "5")})
	n.used("q", "secrets", "1")
	for _, status := range []string{
		`{"hard":{"secrets":"9"}}`, `{"used":{"secrets":"4"}}`, `{"used":{"secrets":"0"}}`,
		`{"hard":{"secrets":"2","pods":"1"},"used":{"secrets":"2","pods":"1"}}`,
		`{"hard":null,"used":null}`,
	} {
		if _, err := quotas.Patch(ctx, "q", types.MergePatchType, []byte(`{"status":`+status+`}`),
			metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		n.used("q", "secrets", "1")
	}
	for i := range 5 {
		if err := quotas.Delete(ctx, "q", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		n.secret(fmt.Sprint("s", i))
		n.quota("q", corev1.ResourceQuotaSpec{
			Hard: resourceQuantities("secrets", "9", "services", fmt.Sprint(i)),
		})
		n.used("q", "secrets", fmt.Sprint(i+2), "services", "0")
	}

	// A namespace with a quota that refuses everything goes like any other.
	full := resourceQuotasIn(t, n.client, n.name+"-full")
	full.secret("s")
	full.quota("q", corev1.ResourceQuotaSpec{
		Hard: resourceQuantities("secrets", "0", "count/pods", "0"),
	})
	full.used("q", "secrets", "1", "count/pods", "0")
	namespaces := n.client.CoreV1().Namespaces()
	workloadtest.OK(t, namespaces.Delete(ctx, full.name, metav1.DeleteOptions{}))
	workloadtest.Until(t, func(ctx context.Context) string {
		ns, err := namespaces.Get(ctx, full.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("%v; %+v", err, ns)
	})
}

func (n resourceQuotasNamespace) secret(name string) {
	n.Helper()
	workloadtest.Until(n, func(ctx context.Context) string {
		_, err := n.client.CoreV1().Secrets(n.name).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name},
		}, metav1.CreateOptions{})
		// Admission fails while it still counts for a quota that has been deleted.
		if apierrors.IsNotFound(err) {
			return err.Error()
		}
		workloadtest.OK(n, err)
		return ""
	})
}

// TestResourceQuotasRestart changes quotas and objects while the controller does not run.
func TestResourceQuotasRestart(t *testing.T) {
	t.Parallel()
	dir, ctx := t.TempDir(), t.Context()
	run := func(controllers ...string) (*server.Server, resourceQuotasNamespace) {
		t.Helper()
		s := servertest.Run(t, func(o *server.Options) { o.DataDir, o.Controllers = dir, controllers })
		return s, resourceQuotasIn(t, workloadtest.Client(t, s), "n")
	}
	cpu := func(cpu string) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests = resourceQuantities("cpu", cpu)
		}
	}
	pod := func(n resourceQuotasNamespace, name, request string) {
		t.Helper()
		if err := n.pod(name, cpu(request)); err != nil {
			t.Fatal(err)
		}
	}
	s, n := run()
	pod(n, "recreated", "1")
	n.secret("gone")
	n.quota("stays", corev1.ResourceQuotaSpec{
		Hard: resourceQuantities("pods", "3", "requests.cpu", "9"),
	})
	n.quota("recreated", corev1.ResourceQuotaSpec{Hard: resourceQuantities("secrets", "3")})
	n.quota("raised", corev1.ResourceQuotaSpec{Hard: resourceQuantities("count/secrets", "2")})
	n.used("stays", "pods", "1", "requests.cpu", "1")
	n.used("recreated", "secrets", "1")
	n.used("raised", "count/secrets", "1")
	workloadtest.OK(t, s.Stop(ctx))

	s, n = run("-*")
	if err := errors.Join(
		n.client.CoreV1().Pods("n").Delete(ctx, "recreated", metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)),
		}),
		n.client.CoreV1().Secrets("n").Delete(ctx, "gone", metav1.DeleteOptions{}),
		n.client.CoreV1().ResourceQuotas("n").Delete(ctx, "recreated", metav1.DeleteOptions{}),
	); err != nil {
		t.Fatal(err)
	}
	pod(n, "recreated", "3")
	pod(n, "other", "2")
	n.quota("recreated", corev1.ResourceQuotaSpec{
		Hard: resourceQuantities("secrets", "7", "pods", "8"),
	})
	n.quota("new", corev1.ResourceQuotaSpec{Hard: resourceQuantities("services", "1")})
	if _, err := n.client.CoreV1().ResourceQuotas("n").Patch(ctx, "raised", types.MergePatchType,
		[]byte(`{"spec":{"hard":{"count/secrets":"3","count/pods":"9"}}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	n.secret("new")
	workloadtest.OK(t, s.Stop(ctx))

	_, n = run()
	n.used("stays", "pods", "2", "requests.cpu", "5")
	n.used("recreated", "secrets", "1", "pods", "2")
	n.used("raised", "count/secrets", "1", "count/pods", "2")
	n.used("new", "services", "0")
}
