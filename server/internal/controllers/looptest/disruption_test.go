package looptest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/policy/disruption"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// disruptions is a namespace with budgets, and pods that the test runs.
type disruptions struct {
	kubernetes.Interface
	*testing.T
	server    *server.Server // nil if it is the shared one
	namespace string
}

func disruptionsShared(t *testing.T) disruptions {
	t.Helper()
	client, namespace := shared(t)
	return disruptions{client, t, nil, namespace}
}

func startDisruptions(t *testing.T, configure ...func(*server.Options)) disruptions {
	t.Helper()
	s := servertest.Run(t, append([]func(*server.Options){func(o *server.Options) {
		o.Controllers = []string{"serviceaccount-controller", disruption.Name}
	}}, configure...)...)
	c := disruptions{workloadtest.Client(t, s), t, s, workloadtest.Namespace}
	workloadtest.Until(t, func(ctx context.Context) string {
		if _, err := c.CoreV1().ServiceAccounts(c.namespace).Get(ctx, "default",
			metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	return c
}

func (c disruptions) stop() {
	c.Helper()
	workloadtest.OK(c.T, c.server.Stop(c.Context()))
}

// pod creates a pod that runs and is ready.
func (c disruptions) pod(name, app string, owner *metav1.OwnerReference) {
	c.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if owner != nil {
		p.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	if _, err := c.CoreV1().Pods(c.namespace).Create(c.Context(), p,
		metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	c.patch(name, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
}

func (c disruptions) patch(pod, status string) {
	c.Helper()
	if _, err := c.CoreV1().Pods(c.namespace).Patch(c.Context(), pod, types.StrategicMergePatchType,
		[]byte(status), metav1.PatchOptions{}, "status"); err != nil {
		c.Fatal(err)
	}
}

func (c disruptions) budget(app string, spec policyv1.PodDisruptionBudgetSpec) {
	c.Helper()
	spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	if _, err := c.PolicyV1().PodDisruptionBudgets(c.namespace).Create(c.Context(),
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: app}, Spec: spec},
		metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

// status waits until the status of a budget is as wanted.
func (c disruptions) status(name string, wanted func(*policyv1.PodDisruptionBudgetStatus) bool) {
	c.Helper()
	workloadtest.Await(c.T, "budget "+name,
		func(ctx context.Context) (*policyv1.PodDisruptionBudget, error) {
			return c.PolicyV1().PodDisruptionBudgets(c.namespace).Get(ctx, name, metav1.GetOptions{})
		}, func(b *policyv1.PodDisruptionBudget) bool {
			return b.Status.ObservedGeneration == b.Generation && wanted(&b.Status)
		})
}

func (c disruptions) evict(pod string) error {
	return c.PolicyV1().Evictions(c.namespace).Evict(c.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: pod},
	})
}

// disruptionCounts returns a check of the status of a budget.
func disruptionCounts(
	expected, desired, healthy, allowed int32,
) func(*policyv1.PodDisruptionBudgetStatus) bool {
	return func(s *policyv1.PodDisruptionBudgetStatus) bool {
		return s.ExpectedPods == expected && s.DesiredHealthy == desired &&
			s.CurrentHealthy == healthy && s.DisruptionsAllowed == allowed &&
			len(s.DisruptedPods) == 0 && meta.IsStatusConditionPresentAndEqual(s.Conditions,
			policyv1.DisruptionAllowedCondition, metav1.ConditionStatus(map[bool]string{
				true: "True", false: "False",
			}[allowed > 0]))
	}
}

// TestDisruptionEvictions evicts more pods at once than a budget allows.
func TestDisruptionEvictions(t *testing.T) {
	t.Parallel()
	c := disruptionsShared(t)
	const pods, least = 10, 6
	c.budget("a", policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(least))})
	c.status("a", disruptionCounts(0, least, 0, 0))
	for i := range pods {
		c.pod(fmt.Sprint("a-", i), "a", nil)
	}
	c.pod("other", "b", nil)
	c.status("a", disruptionCounts(pods, least, pods, pods-least))

	var evicted atomic.Int32
	var running sync.WaitGroup
	for i := range pods {
		running.Go(func() {
			switch err := c.evict(fmt.Sprint("a-", i)); {
			case err == nil:
				evicted.Add(1)
			case !apierrors.IsTooManyRequests(err):
				t.Errorf("evict pod %d: %v", i, err)
			}
		})
	}
	running.Wait()
	if got := evicted.Load(); got != pods-least {
		t.Errorf("evicted %d pods, want %d", got, pods-least)
	}
	c.status("a", disruptionCounts(least, least, least, 0))

	// Pods that take their place must be ready before others can be evicted.
	c.pod("new", "a", nil)
	c.status("a", disruptionCounts(least+1, least, least+1, 1))
	c.patch("new", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
	c.status("a", disruptionCounts(least+1, least, least, 0))
}

// TestDisruptionExpected counts pods whose owners want more of them than there are.
func TestDisruptionExpected(t *testing.T) {
	t.Parallel()
	c := startDisruptions(t)
	ctx := t.Context()
	template := func(app string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
	}
	selector := func(app string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	owner := func(apiVersion, kind string, obj metav1.Object) *metav1.OwnerReference {
		return &metav1.OwnerReference{
			APIVersion: apiVersion, Kind: kind, Name: obj.GetName(), UID: obj.GetUID(),
			Controller: new(true),
		}
	}
	deployment, err := c.AppsV1().Deployments(c.namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(5)), Selector: selector("d"), Template: template("d"),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.budget("d", policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromString("30%"))})
	c.status("d", disruptionCounts(0, 0, 0, 0))
	for i := range 2 { // in the middle of a rollout
		set, err := c.AppsV1().ReplicaSets(c.namespace).Create(ctx, &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{
				Name:            fmt.Sprint("d-", i),
				OwnerReferences: []metav1.OwnerReference{*owner("apps/v1", "Deployment", deployment)},
			},
			Spec: appsv1.ReplicaSetSpec{
				Replicas: new(int32(3)), Selector: selector("d"), Template: template("d"),
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for j := range 2 {
			c.pod(fmt.Sprint(set.Name, "-", j), "d", owner("apps/v1", "ReplicaSet", set))
		}
	}
	// 30 % of 5 are 2.
	c.status("d", disruptionCounts(5, 3, 4, 1))

	// an owner of a custom kind
	servertest.CRDs(t, c.server, servertest.Objects(disruptionRooms()))
	client, err := dynamic.NewForConfig(c.server.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	room, err := client.Resource(schema.GroupVersionResource{
		Group: "example.com", Version: "v1", Resource: "rooms",
	}).Namespace(c.namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Room", "metadata": map[string]any{"name": "r"},
		"spec": map[string]any{"replicas": int64(4)},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.budget("r", policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromString("50%"))})
	for i := range 3 {
		c.pod(fmt.Sprint("r-", i), "r", owner("example.com/v1", "Room", room))
	}
	c.status("r", disruptionCounts(4, 2, 3, 1))

	// A pod whose owner is unknown makes the budget allow nothing.
	c.pod("r-stray", "r", &metav1.OwnerReference{
		APIVersion: "apps/v1", Kind: "StatefulSet", Name: "gone", UID: "gone", Controller: new(true),
	})
	c.status("r", func(s *policyv1.PodDisruptionBudgetStatus) bool {
		condition := meta.FindStatusCondition(s.Conditions, policyv1.DisruptionAllowedCondition)
		return s.DisruptionsAllowed == 0 && condition.Reason == policyv1.SyncFailedReason &&
			condition.Message == `found no controllers for pod "r-stray"`
	})
	if err := c.evict("r-0"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the eviction returns %v", err)
	}
}

// TestDisruptionRestart changes budgets, pods and their owners while the loop does not run.
func TestDisruptionRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	configure := func(o *server.Options) { o.DataDir = dir }
	c := startDisruptions(t, configure)
	set := func(replicas int32) *metav1.OwnerReference {
		t.Helper()
		labels := map[string]string{"app": "set"}
		s := workloadtest.Must(c.AppsV1().StatefulSets(c.namespace).Create(t.Context(),
			&appsv1.StatefulSet{
				ObjectMeta: metav1.ObjectMeta{Name: "set"},
				Spec: appsv1.StatefulSetSpec{
					Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: workloadtest.Template(labels),
				},
			}, metav1.CreateOptions{}))(t)
		return metav1.NewControllerRef(s, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	}
	remove := func(pods ...string) {
		t.Helper()
		for _, name := range pods {
			workloadtest.OK(t, c.CoreV1().Pods(c.namespace).Delete(t.Context(), name,
				metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
		}
	}
	one := policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(1))}
	first := set(2)
	c.budget("set", one)
	c.pod("set-0", "set", first)
	c.pod("set-1", "set", first)
	c.status("set", disruptionCounts(2, 1, 2, 1))
	two := policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(2))}
	c.budget("plain", two)
	for i := range 3 {
		c.pod(fmt.Sprint("plain-", i), "plain", nil)
	}
	c.status("plain", disruptionCounts(3, 2, 3, 1))
	c.stop()

	c = startDisruptions(t, configure, servertest.WithoutControllers)
	// The set is another one with pods of the same names, of which the first was evicted before.
	remove("set-0", "set-1")
	budgets := c.PolicyV1().PodDisruptionBudgets(c.namespace)
	b := workloadtest.Must(budgets.Get(t.Context(), "set", metav1.GetOptions{}))(t)
	b.Status.DisruptedPods = map[string]metav1.Time{
		"set-0": metav1.NewTime(time.Now().Add(-time.Minute)),
	}
	workloadtest.Must(budgets.UpdateStatus(t.Context(), b, metav1.UpdateOptions{}))(t)
	workloadtest.OK(t, c.AppsV1().StatefulSets(c.namespace).Delete(t.Context(), "set",
		metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}))
	second := set(3)
	for i := range 3 {
		c.pod(fmt.Sprint("set-", i), "set", second)
	}
	// The other budget is another one, too.
	workloadtest.OK(t, budgets.Delete(t.Context(), "plain", metav1.DeleteOptions{}))
	c.budget("plain", two)
	remove("plain-0")
	c.patch("plain-1", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
	c.stop()

	c = startDisruptions(t, configure)
	c.status("set", disruptionCounts(3, 2, 3, 1))
	c.status("plain", disruptionCounts(2, 2, 1, 0))

	// The same while the loop runs.
	c.pod("plain-0", "plain", nil)
	c.status("plain", disruptionCounts(3, 2, 2, 0))
	workloadtest.OK(t, c.PolicyV1().PodDisruptionBudgets(c.namespace).Delete(t.Context(), "plain",
		metav1.DeleteOptions{}))
	c.budget("plain", policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1))})
	c.status("plain", disruptionCounts(3, 1, 2, 1))
}

// disruptionRooms is the definition of a kind with a scale.
func disruptionRooms() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "rooms.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "rooms", Kind: "Room"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: new(true),
					},
				},
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Scale: &apiextensionsv1.CustomResourceSubresourceScale{
						SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas",
					},
				},
			}},
		},
	}
}
