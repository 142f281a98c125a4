package looptest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/apps/replicasets"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// replicaSetSelector selects the pods of the replicaSetTemplate.
var replicaSetSelector = map[string]string{"app": "a"}

func replicaSetTemplate() *corev1.PodTemplateSpec {
	return new(workloadtest.Template(map[string]string{"app": "a", "tier": "b"}))
}

func replicaSetOf(replicas int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "set"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: new(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: replicaSetSelector},
			Template: *replicaSetTemplate(),
		},
	}
}

// replicaSetAwait gets the set until it is as wanted.
func replicaSetAwait(
	t *testing.T, client kubernetes.Interface, namespace, what string,
	wanted func(*appsv1.ReplicaSet) bool,
) *appsv1.ReplicaSet {
	t.Helper()
	return workloadtest.Await(t, what, func(ctx context.Context) (*appsv1.ReplicaSet, error) {
		return client.AppsV1().ReplicaSets(namespace).Get(ctx, "set", metav1.GetOptions{})
	}, wanted)
}

func replicaSetScale(
	t *testing.T, client kubernetes.Interface, namespace, replicas string,
) {
	t.Helper()
	workloadtest.Must(client.AppsV1().ReplicaSets(namespace).Patch(t.Context(), "set",
		types.MergePatchType, []byte(`{"spec":{"replicas":`+replicas+`}}`), metav1.PatchOptions{}))(t)
}

func TestReplicaSetScale(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	workloadtest.Kubelet(t, client, namespace)
	sets, pods := client.AppsV1().ReplicaSets(namespace), client.CoreV1().Pods(namespace)
	// An orphan is adopted. It lacks a label of the template.
	orphan := workloadtest.Must(pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "orphan", Labels: replicaSetSelector},
		Spec:       replicaSetTemplate().Spec,
	}, metav1.CreateOptions{}))(t)
	workloadtest.Must(sets.Create(t.Context(), replicaSetOf(5), metav1.CreateOptions{}))(t)
	rs := replicaSetAwait(t, client, namespace, "five pods", func(rs *appsv1.ReplicaSet) bool {
		return rs.Status.AvailableReplicas == 5
	})
	want := appsv1.ReplicaSetStatus{
		Replicas: 5, FullyLabeledReplicas: 4, ReadyReplicas: 5, AvailableReplicas: 5,
		TerminatingReplicas: new(int32(0)), ObservedGeneration: rs.Generation,
	}
	if got, want := rs.Status.String(), want.String(); got != want {
		t.Errorf("the status is %s, want %s", got, want)
	}
	list := workloadtest.Pods(t, client, namespace, "")
	if len(list) != 5 {
		t.Errorf("there are %d pods, want 5", len(list))
	}
	for _, pod := range list {
		if ref := metav1.GetControllerOf(&pod); ref == nil || ref.UID != rs.UID ||
			ref.Kind != "ReplicaSet" || ref.BlockOwnerDeletion == nil || !*ref.BlockOwnerDeletion {
			t.Errorf("the controller of %s is %v", pod.Name, ref)
		}
		if pod.UID != orphan.UID && (!strings.HasPrefix(pod.Name, "set-") ||
			!maps.Equal(pod.Labels, replicaSetTemplate().Labels)) {
			t.Errorf("made a pod %s with labels %v", pod.Name, pod.Labels)
		}
	}

	// A pod that does not match any more is released and replaced.
	workloadtest.Must(pods.Patch(t.Context(), "orphan", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"app":"other"}}}`), metav1.PatchOptions{}))(t)
	replicaSetAwait(t, client, namespace, "a pod instead of the released one",
		func(rs *appsv1.ReplicaSet) bool {
			return rs.Status.FullyLabeledReplicas == 5 && rs.Status.AvailableReplicas == 5
		})
	if released := workloadtest.Must(pods.Get(t.Context(), "orphan",
		metav1.GetOptions{}))(t); len(released.OwnerReferences) > 0 {
		t.Errorf("the released pod has the owners %v", released.OwnerReferences)
	}

	// The cheapest pods go first.
	list = workloadtest.Pods(t, client, namespace, "tier=b")
	for _, pod := range list[1:] {
		workloadtest.Must(pods.Patch(t.Context(), pod.Name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"-5"}}}`),
			metav1.PatchOptions{}))(t)
	}
	replicaSetScale(t, client, namespace, "1")
	replicaSetAwait(t, client, namespace, "one pod", func(rs *appsv1.ReplicaSet) bool {
		return rs.Status.Replicas == 1
	})
	left := workloadtest.Pods(t, client, namespace, "tier=b")
	if len(left) != 1 || left[0].UID != list[0].UID {
		t.Errorf("the pods left are %v", left)
	}
	workloadtest.Await(t, "the events", func(ctx context.Context) ([]string, error) {
		list, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
		var found []string
		for _, e := range list.Items {
			found = append(found, e.Source.Component+" "+e.Reason+" "+e.Message)
		}
		return found, err
	}, func(events []string) bool {
		return len(events) >= 9 && slices.Contains(events,
			"replicaset-controller SuccessfulCreate Created pod: "+list[0].Name) &&
			slices.Contains(events,
				"replicaset-controller SuccessfulDelete Deleted pod: "+list[1].Name)
	})
}

func TestReplicaSetQuota(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	quotas := client.CoreV1().ResourceQuotas(namespace)
	workloadtest.Must(quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			corev1.ResourceRequestsCPU: resource.MustParse("1"),
		}},
	}, metav1.CreateOptions{}))(t)
	workloadtest.Await(t, "the use of the quota",
		func(ctx context.Context) (*corev1.ResourceQuota, error) {
			return quotas.Get(ctx, "none", metav1.GetOptions{})
		}, func(q *corev1.ResourceQuota) bool { return len(q.Status.Used) == 1 })
	workloadtest.Must(client.AppsV1().ReplicaSets(namespace).Create(t.Context(), replicaSetOf(3),
		metav1.CreateOptions{}))(t)
	rs := replicaSetAwait(t, client, namespace, "a failure", func(rs *appsv1.ReplicaSet) bool {
		return len(rs.Status.Conditions) == 1
	})
	if c := rs.Status.Conditions[0]; c.Type != appsv1.ReplicaSetReplicaFailure ||
		c.Status != corev1.ConditionTrue || c.Reason != "FailedCreate" ||
		!strings.Contains(c.Message, "requests.cpu") {
		t.Errorf("the condition is %+v", c)
	}
	workloadtest.OK(t, quotas.Delete(t.Context(), "none", metav1.DeleteOptions{}))
	replicaSetAwait(t, client, namespace, "pods", func(rs *appsv1.ReplicaSet) bool {
		return rs.Status.Replicas == 3 && len(rs.Status.Conditions) == 0
	})
}

// A set that is deleted and created again while pods are left makes its own pods, and the other
// controllers leave it what it has.
func TestReplicaSetRecreated(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	sets := client.AppsV1().ReplicaSets(namespace)
	first := workloadtest.Must(sets.Create(t.Context(), replicaSetOf(3), metav1.CreateOptions{}))(t)
	replicaSetAwait(t, client, namespace, "the first pods", func(rs *appsv1.ReplicaSet) bool {
		return rs.Status.Replicas == 3
	})
	workloadtest.OK(t, sets.Delete(t.Context(), "set", metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	}))
	second := workloadtest.Must(sets.Create(t.Context(), replicaSetOf(2), metav1.CreateOptions{}))(t)
	replicaSetAwait(t, client, namespace, "the second pods", func(rs *appsv1.ReplicaSet) bool {
		return rs.Status.Replicas == 2
	})
	workloadtest.Await(t, "only the second pods", func(context.Context) ([]corev1.Pod, error) {
		return workloadtest.Pods(t, client, namespace, "app=a"), nil
	}, func(pods []corev1.Pod) bool {
		var mine int
		for _, pod := range pods {
			switch metav1.GetControllerOf(&pod).UID {
			case second.UID:
				mine++
			case first.UID:
			default:
				t.Errorf("%s has the owners %v", pod.Name, pod.OwnerReferences)
			}
		}
		return mine == 2 && len(pods) == 2
	})
}

// A control plane that is stopped while pods are made makes the rest after it starts again, and no
// more.
func TestReplicaSetRestart(t *testing.T) {
	t.Parallel()
	dir, namespace := t.TempDir(), workloadtest.Namespace
	s, client := workloadtest.Run(t, []string{replicasets.Name}, func(o *server.Options) {
		o.DataDir = dir
	})
	workloadtest.Must(client.AppsV1().ReplicaSets(namespace).Create(t.Context(), replicaSetOf(200),
		metav1.CreateOptions{}))(t)
	workloadtest.Await(t, "some pods", func(context.Context) (int, error) {
		return len(workloadtest.Pods(t, client, namespace, "app=a")), nil
	}, func(n int) bool { return n > 10 })
	workloadtest.OK(t, s.Stop(context.WithoutCancel(t.Context())))
	_, client = workloadtest.Run(t, []string{replicasets.Name}, func(o *server.Options) {
		o.DataDir = dir
	})
	replicaSetAwait(t, client, namespace, "all pods", func(rs *appsv1.ReplicaSet) bool {
		if rs.Status.Replicas > 200 {
			t.Errorf("made %d pods", rs.Status.Replicas)
		}
		return rs.Status.Replicas == 200
	})
	replicaSetScale(t, client, namespace, "3")
	replicaSetAwait(t, client, namespace, "three pods", func(rs *appsv1.ReplicaSet) bool {
		return rs.Status.Replicas == 3
	})
	if n := len(workloadtest.Pods(t, client, namespace, "app=a")); n != 3 {
		t.Errorf("there are %d pods, want 3", n)
	}
}

func TestReplicationController(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	workloadtest.Kubelet(t, client, namespace)
	controllers := client.CoreV1().ReplicationControllers(namespace)
	workloadtest.Must(controllers.Create(t.Context(), &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Name: "rc"},
		Spec: corev1.ReplicationControllerSpec{
			Replicas: new(int32(3)), Selector: replicaSetSelector, Template: replicaSetTemplate(),
			MinReadySeconds: 1,
		},
	}, metav1.CreateOptions{}))(t)
	rc := workloadtest.Await(t, "three pods",
		func(ctx context.Context) (*corev1.ReplicationController, error) {
			rc, err := controllers.Get(ctx, "rc", metav1.GetOptions{})
			if err == nil && rc.Status.AvailableReplicas > rc.Status.ReadyReplicas {
				t.Errorf("more pods are available than ready: %+v", rc.Status)
			}
			return rc, err
		}, func(rc *corev1.ReplicationController) bool { return rc.Status.AvailableReplicas == 3 })
	if rc.Status.Replicas != 3 || rc.Status.FullyLabeledReplicas != 3 ||
		rc.Status.ObservedGeneration != rc.Generation {
		t.Errorf("the status is %+v", rc.Status)
	}
}
