package looptest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/apps/statefulsets"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

func statefulSetOf(replicas int32) *appsv1.StatefulSet {
	labels := map[string]string{"app": "db"}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(replicas), ServiceName: "service",
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: workloadtest.Template(labels),
		},
	}
}

// statefulSetWorkload is a StatefulSet in a control plane.
type statefulSetWorkload struct {
	workloadtest.Workload[*appsv1.StatefulSet]
}

func statefulSetIn(
	t testing.TB, client kubernetes.Interface, namespace string,
) statefulSetWorkload {
	return statefulSetWorkload{workloadtest.Workload[*appsv1.StatefulSet]{
		TB: t, Client: client, Namespace: namespace, App: "db",
		API: client.AppsV1().StatefulSets(namespace),
	}}
}

// await gets the set until its controller has seen it and it is as wanted.
func (c statefulSetWorkload) await(
	what string, wanted func(*appsv1.StatefulSet) bool,
) *appsv1.StatefulSet {
	c.Helper()
	return c.Await(what, func(s *appsv1.StatefulSet) bool {
		return s.Status.ObservedGeneration == s.Generation && wanted(s)
	})
}

func (c statefulSetWorkload) available(replicas int32) *appsv1.StatefulSet {
	c.Helper()
	return c.await("available pods", func(s *appsv1.StatefulSet) bool {
		return s.Status.Replicas == replicas && s.Status.AvailableReplicas == replicas
	})
}

// place tells the pods apart.
func (statefulSetWorkload) place(pod *corev1.Pod) string { return pod.Name }

// pods returns the pods as name=image.
func (c statefulSetWorkload) pods() []string {
	c.Helper()
	return c.Pods(c.place)
}

func (c statefulSetWorkload) awaitPods(want ...string) {
	c.Helper()
	c.AwaitPods(c.place, want...)
}

func (c statefulSetWorkload) ready(name string, ready bool) {
	c.Helper()
	pod := workloadtest.Must(c.Client.CoreV1().Pods(c.Namespace).Get(c.Context(), name,
		metav1.GetOptions{}))(c)
	if err := workloadtest.Ready(c.Context(), c.Client, pod, ready); err != nil {
		c.Fatal(err)
	}
}

func TestStatefulSetOrder(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	c := statefulSetIn(t, client, namespace)
	s := statefulSetOf(3)
	s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 5}
	c.Create(s)
	// One after the other, as each becomes ready.
	for i, name := range []string{"db-5", "db-6", "db-7"} {
		c.await("the next pod", func(s *appsv1.StatefulSet) bool {
			return s.Status.Replicas == int32(i)+1 && s.Status.ReadyReplicas == int32(i)
		})
		if n := len(c.pods()); n != i+1 {
			t.Errorf("there are %d pods before pod %d is ready", n, i)
		}
		c.ready(name, true)
	}
	s = c.available(3)
	pod := workloadtest.Must(client.CoreV1().Pods(namespace).Get(t.Context(), "db-6",
		metav1.GetOptions{}))(t)
	for label, want := range map[string]string{
		"statefulset.kubernetes.io/pod-name": "db-6", "apps.kubernetes.io/pod-index": "6",
		"controller-revision-hash": s.Status.UpdateRevision, "app": "db",
	} {
		if got := pod.Labels[label]; got != want {
			t.Errorf("the label %s is %q, want %q", label, got, want)
		}
	}
	if pod.Spec.Hostname != "db-6" || pod.Spec.Subdomain != "service" {
		t.Errorf("the pod is %s.%s", pod.Spec.Hostname, pod.Spec.Subdomain)
	}

	// While a pod is not ready, none is deleted but that one.
	c.ready("db-5", false)
	c.await("an unready pod", func(s *appsv1.StatefulSet) bool { return s.Status.ReadyReplicas == 2 })
	c.Patch(`{"spec":{"replicas":2}}`)
	c.await("the new size", func(s *appsv1.StatefulSet) bool { return true })
	if n := len(c.pods()); n != 3 {
		t.Errorf("there are %d pods, want 3", n)
	}
	c.ready("db-5", true)
	c.awaitPods("db-5=i:1", "db-6=i:1")

	// A failed pod is made again.
	workloadtest.Must(client.CoreV1().Pods(namespace).Patch(t.Context(), "db-6", types.MergePatchType,
		[]byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status"))(t)
	workloadtest.Await(t, "another pod", func(ctx context.Context) ([]corev1.Pod, error) {
		return workloadtest.Pods(t, client, namespace, "app=db"), nil
	}, func(pods []corev1.Pod) bool { return len(pods) == 2 && pods[1].UID != pod.UID })
}

func TestStatefulSetRollingUpdate(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	workloadtest.Kubelet(t, client, namespace)
	c := statefulSetIn(t, client, namespace)
	s := statefulSetOf(3)
	s.Spec.RevisionHistoryLimit = new(int32(1))
	s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	c.Create(s)
	first := c.available(3).Status.CurrentRevision
	c.Patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}}}}`)
	c.Image("i:2")
	c.awaitPods("db-0=i:1", "db-1=i:1", "db-2=i:2")
	s = c.await("a partial update", func(s *appsv1.StatefulSet) bool {
		return s.Status.UpdatedReplicas == 1 && s.Status.ReadyReplicas == 3
	})
	if s.Status.CurrentRevision != first || s.Status.UpdateRevision == first ||
		s.Status.CurrentReplicas != 2 {
		t.Errorf("the status is %+v", s.Status)
	}
	// Below the partition, pods keep the first template.
	if err := client.CoreV1().Pods(namespace).Delete(t.Context(), "db-0",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.await("the pod again", func(s *appsv1.StatefulSet) bool {
		return s.Status.ReadyReplicas == 3 && len(c.pods()) == 3
	})
	c.awaitPods("db-0=i:1", "db-1=i:1", "db-2=i:2")
	c.Patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
	c.awaitPods("db-0=i:2", "db-1=i:2", "db-2=i:2")
	c.await("the end", func(s *appsv1.StatefulSet) bool {
		return s.Status.CurrentRevision == s.Status.UpdateRevision && s.Status.CurrentReplicas == 3
	})
	// Back, and the old revision becomes the latest.
	c.Image("i:1")
	c.awaitPods("db-0=i:1", "db-1=i:1", "db-2=i:1")
	c.await("the way back", func(s *appsv1.StatefulSet) bool {
		return s.Status.CurrentRevision == first
	})
	c.Patch(`{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`)
	c.Image("i:3")
	c.await("a new revision", func(s *appsv1.StatefulSet) bool {
		return s.Status.UpdateRevision != first
	})
	c.awaitPods("db-0=i:1", "db-1=i:1", "db-2=i:1")
	if err := client.CoreV1().Pods(namespace).Delete(t.Context(), "db-1",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitPods("db-0=i:1", "db-1=i:3", "db-2=i:1")
	// One revision is in no use; the limit is one.
	var numbers []int64
	revisions := client.AppsV1().ControllerRevisions(namespace)
	for _, r := range workloadtest.Must(revisions.List(t.Context(),
		metav1.ListOptions{}))(t).Items {
		numbers = append(numbers, r.Revision)
	}
	if slices.Sort(numbers); !slices.Equal(numbers, []int64{2, 3, 4}) {
		t.Errorf("the revisions are %v", numbers)
	}
}

// TestStatefulSetMaxUnavailable updates several pods at once. Nobody but the test makes them ready.
func TestStatefulSetMaxUnavailable(t *testing.T) {
	t.Parallel()
	start := func(
		t *testing.T, replicas, most int32, policy appsv1.PodManagementPolicyType, ready ...string,
	) statefulSetWorkload {
		client, namespace := shared(t)
		c := statefulSetIn(t, client, namespace)
		s := statefulSetOf(replicas)
		s.Spec.PodManagementPolicy = policy
		s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{
			MaxUnavailable: new(intstr.FromInt32(most)),
		}
		c.Create(s)
		for i, name := range ready {
			c.await("the pod "+name, func(s *appsv1.StatefulSet) bool {
				return s.Status.Replicas > int32(i)
			})
			c.ready(name, true)
		}
		c.await("the first pods", func(s *appsv1.StatefulSet) bool {
			return s.Status.ReadyReplicas == int32(len(ready)) && s.Status.Replicas == replicas
		})
		c.Image("i:2")
		return c
	}
	t.Run("in order", func(t *testing.T) {
		t.Parallel()
		c := start(t, 4, 2, appsv1.OrderedReadyPodManagement, "db-0", "db-1", "db-2", "db-3")
		c.awaitPods("db-0=i:1", "db-1=i:1", "db-2=i:2")
		c.ready("db-2", true)
		c.awaitPods("db-0=i:1", "db-1=i:1", "db-2=i:2", "db-3=i:2")
		c.ready("db-3", true)
		c.awaitPods("db-0=i:2", "db-2=i:2", "db-3=i:2")
	})
	t.Run("in parallel", func(t *testing.T) {
		t.Parallel()
		c := start(t, 5, 3, appsv1.ParallelPodManagement, "db-2", "db-3", "db-4")
		// Two are unavailable anyway, so one more may be.
		c.awaitPods("db-0=i:2", "db-1=i:2", "db-2=i:1", "db-3=i:1", "db-4=i:2")
		c.await("the status", func(s *appsv1.StatefulSet) bool {
			return s.Status.UpdatedReplicas == 3 && s.Status.CurrentReplicas == 2 &&
				s.Status.ReadyReplicas == 2
		})
		c.ready("db-0", true)
		c.awaitPods("db-0=i:2", "db-1=i:2", "db-2=i:1", "db-3=i:2", "db-4=i:2")
		c.ready("db-1", true)
		c.awaitPods("db-0=i:2", "db-1=i:2", "db-2=i:2", "db-3=i:2", "db-4=i:2")
	})
}

func TestStatefulSetClaims(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	workloadtest.Kubelet(t, client, namespace)
	c := statefulSetIn(t, client, namespace)
	s := statefulSetOf(2)
	s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		},
	}}
	c.Create(s)
	c.available(2)
	claims := func() []string {
		var names []string
		for _, claim := range workloadtest.Must(client.CoreV1().PersistentVolumeClaims(namespace).List(
			t.Context(), metav1.ListOptions{LabelSelector: "app=db"}))(t).Items {
			name := claim.Name
			for _, ref := range claim.OwnerReferences {
				name += "<" + ref.Kind
			}
			names = append(names, name)
		}
		return names
	}
	await := func(want ...string) {
		t.Helper()
		workloadtest.Await(t, fmt.Sprint("the claims ", want),
			func(context.Context) ([]string, error) { return claims(), nil },
			func(got []string) bool { return slices.Equal(got, want) })
	}
	await("data-db-0", "data-db-1")
	pod := workloadtest.Must(client.CoreV1().Pods(namespace).Get(t.Context(), "db-1",
		metav1.GetOptions{}))(t)
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Name == "data" && v.PersistentVolumeClaim != nil &&
			v.PersistentVolumeClaim.ClaimName == "data-db-1"
	}) {
		t.Errorf("the volumes are %v", pod.Spec.Volumes)
	}
	c.Patch(`{"spec":{"replicas":1}}`)
	c.available(1)
	await("data-db-0", "data-db-1")
	c.Patch(`{"spec":{"replicas":2,
		"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete","whenScaled":"Delete"}}}`)
	c.available(2)
	await("data-db-0<StatefulSet", "data-db-1<StatefulSet")
	c.Patch(`{"spec":{"replicas":1}}`)
	c.available(1)
	await("data-db-0<StatefulSet")
	c.Patch(`{"spec":{"replicas":2}}`)
	c.available(2)
	await("data-db-0<StatefulSet", "data-db-1<StatefulSet")
	if err := client.AppsV1().StatefulSets(namespace).Delete(t.Context(), "db", metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	}); err != nil {
		t.Fatal(err)
	}
	await()
}

// A set goes on where it was when the control plane stopped, also if its owner has changed.
func TestStatefulSetRestartAndRecreate(t *testing.T) {
	t.Parallel()
	dir, namespace := t.TempDir(), workloadtest.Namespace
	run := func() (*server.Server, kubernetes.Interface) {
		t.Helper()
		return workloadtest.Run(t,
			[]string{statefulsets.Name, "persistentvolumeclaim-protection-controller"},
			func(o *server.Options) { o.DataDir = dir })
	}
	s, client := run()
	c := statefulSetIn(t, client, namespace)
	c.Create(statefulSetOf(3))
	c.await("a pod", func(s *appsv1.StatefulSet) bool { return s.Status.Replicas == 1 })
	if err := client.AppsV1().StatefulSets(namespace).Delete(t.Context(), "db", metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationOrphan),
	}); err != nil {
		t.Fatal(err)
	}
	workloadtest.OK(t, s.Stop(context.WithoutCancel(t.Context())))
	_, client = run()
	c = statefulSetIn(t, client, namespace)
	workloadtest.Await(t, "the end of the first set",
		func(ctx context.Context) (*appsv1.StatefulSetList, error) {
			return client.AppsV1().StatefulSets(namespace).List(ctx, metav1.ListOptions{})
		}, func(l *appsv1.StatefulSetList) bool { return len(l.Items) == 0 })
	before := workloadtest.Pods(t, client, namespace, "app=db")
	c.Create(statefulSetOf(3))
	workloadtest.Kubelet(t, client, namespace)
	set := c.available(3)
	after := workloadtest.Pods(t, client, namespace, "app=db")
	if len(after) != 3 || after[0].UID != before[0].UID || !metav1.IsControlledBy(&after[0], set) {
		t.Errorf("the pods were %v and are %v", before, after)
	}
	if list := workloadtest.Must(client.AppsV1().ControllerRevisions(namespace).List(t.Context(),
		metav1.ListOptions{}))(t).Items; len(list) != 1 || !metav1.IsControlledBy(&list[0], set) {
		t.Errorf("the revisions are %v", list)
	}
}
