package looptest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/nodes/podgc"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestPodGCOfPodsWithoutNodes has a pod whose node goes, one with a finalizer whose node goes, and
// one whose node comes only just in time, a second before its five are over. By the time the first
// two have been deleted, the third would have been, too.
func TestPodGCOfPodsWithoutNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := servertest.Run(t, servertest.InBubble, func(o *server.Options) {
			o.Controllers = []string{podgc.Name}
		})
		client := workloadtest.Client(t, s)
		nodes, pods := client.CoreV1().Nodes(), client.CoreV1().Pods("default")
		node := func(name string) {
			t.Helper()
			_, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
				metav1.CreateOptions{})
			workloadtest.OK(t, err)
		}
		node("goes")
		workloadtest.ServiceAccount(t, client, "default")
		for name, node := range map[string]string{"early": "late", "plain": "goes", "held": "goes"} {
			p := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: corev1.PodSpec{
					NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}},
				},
			}
			if name == "held" {
				p.Finalizers = []string{"example.com/hold"}
			}
			_, err := pods.Create(t.Context(), p, metav1.CreateOptions{})
			workloadtest.OK(t, err)
		}
		workloadtest.OK(t, nodes.Delete(t.Context(), "goes", metav1.DeleteOptions{}))
		time.Sleep(4 * time.Second)
		node("late")

		workloadtest.Until(t, func(ctx context.Context) string {
			if p, err := pods.Get(ctx, "plain", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("%v: %+v", err, p)
			}
			return ""
		})
		workloadtest.Until(t, func(ctx context.Context) string {
			p, err := pods.Get(ctx, "held", metav1.GetOptions{})
			if err == nil && p.DeletionTimestamp != nil && p.Status.Phase == corev1.PodFailed {
				for _, c := range p.Status.Conditions {
					if c.Type == corev1.DisruptionTarget && c.Reason == "DeletionByPodGC" {
						return ""
					}
				}
			}
			return fmt.Sprintf("%v: %+v", err, p)
		})
		if p, err := pods.Get(t.Context(), "early", metav1.GetOptions{}); err != nil ||
			p.DeletionTimestamp != nil {
			t.Errorf("the pod whose node came late: %v; %+v", err, p)
		}
	})
}

// podGCCluster is a control plane in which a test runs the controller.
type podGCCluster struct{ workloadtest.Cluster }

func podGCAlone(t *testing.T) podGCCluster {
	t.Helper()
	return podGCCluster{workloadtest.NewCluster(t)}
}

// run runs a controller with a client until stop is called or the test ends. Nodes are not missed
// for long, and two pods that have ended are kept.
func (c podGCCluster) run(client kubernetes.Interface) (stop func()) {
	c.Helper()
	d, _ := workloadtest.Dependencies(client)
	return workloadtest.Start(c.T, d, podgc.Within(podgc.Limits{
		Quarantine: 200 * time.Millisecond, Ended: 2,
	}))
}

func (c podGCCluster) node(name string) {
	c.Helper()
	workloadtest.Must(c.CoreV1().Nodes().Create(c.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(c.T)
}

// pod creates a pod on a node, which may be empty.
func (c podGCCluster) pod(ctx context.Context, name, node string) error {
	_, err := c.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
	}, metav1.CreateOptions{})
	return err
}

// remove deletes a pod at once.
func (c podGCCluster) remove(ctx context.Context, name string) error {
	return c.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
	})
}

// recreate deletes a pod and creates another one with its name on a node.
func (c podGCCluster) recreate(ctx context.Context, name, node string) error {
	if err := c.remove(ctx, name); err != nil {
		return err
	}
	return c.pod(ctx, name, node)
}

func (c podGCCluster) patch(name, patch string, subresources ...string) {
	c.Helper()
	workloadtest.Must(c.CoreV1().Pods("default").Patch(c.Context(), name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}, subresources...))(c.T)
}

// left waits until exactly the named pods are left, and checks that none of them is touched.
func (c podGCCluster) left(names ...string) {
	c.Helper()
	workloadtest.Until(c.T, func(ctx context.Context) string {
		list, err := c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		var got []string
		for _, p := range list.Items {
			got = append(got, p.Name)
			if p.DeletionTimestamp != nil || pods.Condition(&p.Status, corev1.DisruptionTarget) != nil {
				return fmt.Sprintf("%s is touched: %+v", p.Name, p)
			}
		}
		if !slices.Equal(got, names) {
			return fmt.Sprintf("the pods are %v", got)
		}
		return ""
	})
}

// TestPodGCOfEndedPods has more pods that have ended than are kept. One of those to delete is held
// by a finalizer at first. A pod that was evicted goes first although it is the youngest.
func TestPodGCOfEndedPods(t *testing.T) {
	t.Parallel()
	c := podGCAlone(t)
	c.node("n")
	for i, phase := range []corev1.PodPhase{
		"Succeeded", "Running", "Failed", "Pending", "Succeeded", "Unknown", "Failed", "Failed",
	} {
		name := fmt.Sprint("pod-", i)
		workloadtest.OK(t, c.pod(t.Context(), name, "n"))
		c.patch(name, fmt.Sprintf(`{"status":{"phase":%q}}`, phase), "status")
	}
	c.patch("pod-0", `{"metadata":{"finalizers":["example.com/hold"]}}`)
	c.patch("pod-7", `{"status":{"reason":"Evicted"}}`, "status")
	c.run(c)
	workloadtest.Until(t, func(ctx context.Context) string {
		p, err := c.CoreV1().Pods("default").Get(ctx, "pod-0", metav1.GetOptions{})
		if err != nil || p.DeletionTimestamp == nil || p.Status.Phase != corev1.PodSucceeded {
			return fmt.Sprintf("%v: %+v", err, p)
		}
		return ""
	})
	c.patch("pod-0", `{"metadata":{"finalizers":null}}`)
	c.left("pod-1", "pod-3", "pod-4", "pod-5", "pod-6")
}

// TestPodGCRecreated replaces a pod when the controller is about to delete it, and another one when
// the controller is about to say that it has failed.
func TestPodGCRecreated(t *testing.T) {
	t.Parallel()
	for _, request := range []struct{ method, suffix string }{
		{"PUT", "/pods/p/status"}, {"DELETE", "/pods/p"},
	} {
		t.Run(request.method, func(t *testing.T) {
			t.Parallel()
			c := podGCAlone(t)
			c.node("n")
			workloadtest.OK(t, c.pod(t.Context(), "p", "gone"))
			client, done := workloadtest.Meanwhile(t, c.Server, request.method, request.suffix,
				func(ctx context.Context) error { return c.recreate(ctx, "p", "n") })
			c.run(client)
			<-done
			// The controller goes on.
			workloadtest.OK(t, c.pod(t.Context(), "q", "gone"))
			c.left("p")
		})
	}
}

// TestPodGCRestart changes what there is while no controller runs.
func TestPodGCRestart(t *testing.T) {
	t.Parallel()
	c := podGCAlone(t)
	for _, node := range []string{"stays", "returns", "goes"} {
		c.node(node)
	}
	for name, node := range map[string]string{
		"orphan": "stays", "late": "stays", "recreated": "goes", "returned": "returns", "lost": "none",
	} {
		workloadtest.OK(t, c.pod(t.Context(), name, node))
	}
	stop := c.run(c)
	c.left("late", "orphan", "recreated", "returned")
	stop()
	workloadtest.OK(t, c.recreate(t.Context(), "orphan", "goes"))
	workloadtest.OK(t, c.recreate(t.Context(), "recreated", "stays"))
	for _, node := range []string{"goes", "returns"} {
		workloadtest.OK(t, c.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}))
	}
	c.node("returns")
	// Nobody ends a pod that was deleted before it got a node.
	workloadtest.OK(t, c.pod(t.Context(), "unbound", ""))
	c.patch("unbound", `{"metadata":{"finalizers":["example.com/hold"]}}`)
	workloadtest.OK(t, c.CoreV1().Pods("default").Delete(t.Context(), "unbound",
		metav1.DeleteOptions{}))
	// And nobody ends one on a node that is shut down.
	n := workloadtest.Must(c.CoreV1().Nodes().Get(t.Context(), "stays", metav1.GetOptions{}))(t)
	n.Spec.Taints = []corev1.Taint{{
		Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute,
	}}
	n = workloadtest.Must(c.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}))(t)
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
	}}
	workloadtest.Must(c.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}))(t)
	workloadtest.OK(t, c.CoreV1().Pods("default").Delete(t.Context(), "late",
		metav1.DeleteOptions{}))
	c.run(c)
	workloadtest.Until(t, func(ctx context.Context) string {
		p, err := c.CoreV1().Pods("default").Get(ctx, "unbound", metav1.GetOptions{})
		if err != nil || p.Status.Phase != corev1.PodFailed {
			return fmt.Sprintf("%v: %+v", err, p)
		}
		return ""
	})
	c.patch("unbound", `{"metadata":{"finalizers":null}}`)
	c.left("recreated", "returned")
}
