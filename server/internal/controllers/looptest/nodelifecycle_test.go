package looptest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/nodes/nodelifecycle"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// nodeLifecycleCluster is a control plane in which a test runs the controller.
type nodeLifecycleCluster struct{ workloadtest.Cluster }

func nodeLifecycleAlone(t *testing.T) nodeLifecycleCluster {
	t.Helper()
	return nodeLifecycleCluster{workloadtest.NewCluster(t)}
}

// nodeLifecycleAmongAll starts a control plane that runs all controllers, this one too.
func nodeLifecycleAmongAll(
	t *testing.T, configure ...func(*server.Options),
) nodeLifecycleCluster {
	t.Helper()
	s := servertest.Run(t, configure...)
	return nodeLifecycleCluster{workloadtest.Cluster{
		T: t, Server: s, Interface: workloadtest.Client(t, s),
	}}
}

// run runs a controller with a client, until stop is called or the test ends. Nodes may not be
// heard of for a grace. Events get the events that it records.
func (c nodeLifecycleCluster) run(
	client kubernetes.Interface, grace, startupGrace time.Duration,
) (events <-chan string, stop func()) {
	c.Helper()
	d, events := workloadtest.Dependencies(client)
	return events, workloadtest.Start(c.T, d, nodelifecycle.With(nodelifecycle.Patience{
		Grace: grace, StartupGrace: startupGrace,
	}))
}

// awaitNode waits until a node has a status of readiness and exactly some taints.
func (c nodeLifecycleCluster) awaitNode(
	name string, ready corev1.ConditionStatus, taints ...string,
) *corev1.Node {
	c.Helper()
	var n *corev1.Node
	workloadtest.Until(c.T, func(ctx context.Context) string {
		var err error
		if n, err = c.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		has := nodeLifecycleTaints(n)
		condition := nodeLifecycleCondition(n, corev1.NodeReady)
		if condition == nil || condition.Status != ready || !slices.Equal(has, taints) {
			return fmt.Sprintf("ready %+v, taints %v", condition, has)
		}
		return ""
	})
	return n
}

// awaitPod waits until a pod is ready, or is not.
func (c nodeLifecycleCluster) awaitPod(name string, ready bool) {
	c.Helper()
	workloadtest.Until(c.T, func(ctx context.Context) string {
		p, err := c.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil || pods.Ready(p) != ready {
			return fmt.Sprintf("%v: %+v", err, p)
		}
		return ""
	})
}

func nodeLifecycleTaints(n *corev1.Node) []string {
	var taints []string
	for _, t := range n.Spec.Taints {
		taints = append(taints, t.Key+":"+string(t.Effect))
	}
	slices.Sort(taints)
	return taints
}

func nodeLifecycleCondition(
	n *corev1.Node, of corev1.NodeConditionType,
) *corev1.NodeCondition {
	i := slices.IndexFunc(n.Status.Conditions,
		func(c corev1.NodeCondition) bool { return c.Type == of })
	if i < 0 {
		return nil
	}
	return &n.Status.Conditions[i]
}

// TestNodeLifecycleUnreachable has a node that stops and comes back, with a pod.
func TestNodeLifecycleUnreachable(t *testing.T) {
	t.Parallel()
	c := nodeLifecycleAmongAll(t, func(o *server.Options) { o.SimulatedNodes = 2 })
	c.awaitNode("simulated-0", corev1.ConditionTrue)
	c.awaitNode("simulated-1", corev1.ConditionTrue)
	_, err := c.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "app"},
		Spec: corev1.PodSpec{
			NodeName: "simulated-0", Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
	}, metav1.CreateOptions{})
	workloadtest.OK(t, err)
	c.awaitPod("app", true)
	stopped := func(value string) {
		t.Helper()
		_, err := c.CoreV1().Nodes().Patch(t.Context(), "simulated-0", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"kinproc.dev/stopped":`+value+`}}}`), metav1.PatchOptions{})
		workloadtest.OK(t, err)
	}
	stopped(`"true"`)
	_, stop := c.run(c, 2*time.Second, 3*time.Second)
	n := c.awaitNode("simulated-0", corev1.ConditionUnknown,
		"node.kubernetes.io/unreachable:NoExecute", "node.kubernetes.io/unreachable:NoSchedule")
	got := nodeLifecycleCondition(n, corev1.NodeMemoryPressure)
	if n.Spec.Taints[0].TimeAdded == nil || got.Status != corev1.ConditionUnknown ||
		got.Reason != "NodeStatusUnknown" {
		t.Errorf("the node is %+v", n)
	}
	c.awaitPod("app", false)
	stop() // its patience is shorter than a node needs
	stopped("null")
	c.awaitNode("simulated-0", corev1.ConditionTrue)
	c.awaitPod("app", true)
}

// TestNodeConditionsBecomeTaints has a node of somebody else, and a taint that is none of the
// controller's business.
func TestNodeConditionsBecomeTaints(t *testing.T) {
	t.Parallel()
	c := nodeLifecycleAmongAll(t)
	_, stop := c.run(c, time.Hour, time.Hour)
	workloadtest.OK(t, c.node(t.Context(), "healthy", corev1.ConditionTrue))
	_, err := c.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Spec: corev1.NodeSpec{
			Unschedulable: true,
			Taints:        []corev1.Taint{{Key: "mine", Effect: corev1.TaintEffectNoSchedule}},
		},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionFalse},
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue},
		}},
	}, metav1.CreateOptions{})
	workloadtest.OK(t, err)
	c.awaitNode("n", corev1.ConditionFalse, "mine:NoSchedule",
		"node.kubernetes.io/disk-pressure:NoSchedule", "node.kubernetes.io/not-ready:NoExecute",
		"node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/unschedulable:NoSchedule")
	_, err = c.CoreV1().Nodes().Patch(t.Context(), "n", types.StrategicMergePatchType,
		[]byte(`{"spec":{"unschedulable":null}}`), metav1.PatchOptions{})
	workloadtest.OK(t, err)
	c.awaitNode("n", corev1.ConditionFalse, "mine:NoSchedule",
		"node.kubernetes.io/disk-pressure:NoSchedule", "node.kubernetes.io/not-ready:NoExecute",
		"node.kubernetes.io/not-ready:NoSchedule")
	stop()

	// Nobody renews the leases of the nodes. As none is ready, no pods are evicted.
	c.run(c, 2*time.Second, 3*time.Second)
	c.awaitNode("n", corev1.ConditionUnknown, "mine:NoSchedule",
		"node.kubernetes.io/unreachable:NoSchedule")
}

// TestNodeLifecycleDisruption has all nodes fail, and one come back.
func TestNodeLifecycleDisruption(t *testing.T) {
	t.Parallel()
	c := nodeLifecycleAlone(t)
	c.run(c, time.Hour, time.Hour)
	const noSchedule, noExecute = corev1.TaintNodeNotReady + ":NoSchedule",
		corev1.TaintNodeNotReady + ":NoExecute"
	workloadtest.OK(t, c.node(t.Context(), "a", corev1.ConditionFalse))
	c.awaitNode("a", corev1.ConditionFalse, noSchedule)
	workloadtest.OK(t, c.node(t.Context(), "b", corev1.ConditionTrue))
	c.awaitNode("a", corev1.ConditionFalse, noExecute, noSchedule)
	workloadtest.OK(t, c.post(t.Context(), "b", corev1.ConditionFalse))
	for _, name := range []string{"a", "b"} {
		c.awaitNode(name, corev1.ConditionFalse, noSchedule)
	}
	workloadtest.OK(t, c.post(t.Context(), "b", corev1.ConditionTrue))
	c.awaitNode("a", corev1.ConditionFalse, noExecute, noSchedule)
	c.awaitNode("b", corev1.ConditionTrue)
}

// node creates a node instead of an earlier one. Ready is the status of its condition, which it has
// not if this is empty.
func (c nodeLifecycleCluster) node(
	ctx context.Context, name string, ready corev1.ConditionStatus,
) error {
	nodes := c.CoreV1().Nodes()
	err := nodes.Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if ready != "" {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	}
	_, err = nodes.Create(ctx, n, metav1.CreateOptions{})
	return err
}

// post has the kubelet of a node post its status.
func (c nodeLifecycleCluster) post(
	ctx context.Context, name string, ready corev1.ConditionStatus,
) error {
	_, err := c.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q,
		"lastHeartbeatTime":"2020-01-01T00:00:00Z"}]}}`, ready), metav1.PatchOptions{}, "status")
	return err
}

// pod creates a pod on a node that is ready, instead of an earlier one.
func (c nodeLifecycleCluster) pod(name, node string) {
	c.Helper()
	pods := c.CoreV1().Pods("default")
	err := pods.Delete(c.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if !apierrors.IsNotFound(err) {
		workloadtest.OK(c.T, err)
	}
	p := workloadtest.Must(pods.Create(c.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
	}, metav1.CreateOptions{}))(c.T)
	workloadtest.OK(c.T, workloadtest.Ready(c.Context(), c, p, true))
}

// TestNodeLifecycleRaces changes something when the controller is about to write.
func TestNodeLifecycleRaces(t *testing.T) {
	t.Parallel()
	const short = 200 * time.Millisecond
	// goesOn waits until the controller has done something else.
	goesOn := func(c nodeLifecycleCluster) {
		c.Helper()
		workloadtest.OK(c.T, c.node(c.Context(), "other", ""))
		c.awaitTaints("other")
	}
	t.Run("node recreated", func(t *testing.T) {
		t.Parallel()
		c := nodeLifecycleAlone(t)
		workloadtest.OK(t, c.node(t.Context(), "n", corev1.ConditionTrue))
		client, done := workloadtest.Meanwhile(t, c.Server, "PUT", "/nodes/n/status",
			func(ctx context.Context) error { return c.node(ctx, "n", "") })
		c.run(client, short, time.Hour)
		<-done
		goesOn(c)
		n := c.awaitTaints("n")
		if len(n.Status.Conditions) > 0 {
			t.Errorf("the node got the conditions %+v", n.Status.Conditions)
		}
	})
	t.Run("node ready again", func(t *testing.T) {
		t.Parallel()
		c := nodeLifecycleAlone(t)
		workloadtest.OK(t, c.node(t.Context(), "healthy", corev1.ConditionTrue))
		workloadtest.OK(t, c.node(t.Context(), "n", corev1.ConditionFalse))
		client, done := workloadtest.Meanwhile(t, c.Server, "PUT", "/nodes/n",
			func(ctx context.Context) error { return c.post(ctx, "n", corev1.ConditionTrue) })
		c.run(client, time.Hour, time.Hour)
		<-done
		goesOn(c)
		c.awaitNode("n", corev1.ConditionTrue)
	})
	t.Run("pod written", func(t *testing.T) {
		t.Parallel()
		c := nodeLifecycleAlone(t)
		workloadtest.OK(t, c.node(t.Context(), "n", corev1.ConditionFalse))
		c.pod("app", "n")
		client, _ := workloadtest.Meanwhile(t, c.Server, "PUT", "/pods/app/status",
			func(ctx context.Context) error {
				_, err := c.CoreV1().Pods("default").Patch(ctx, "app", types.MergePatchType,
					[]byte(`{"status":{"message":"mine"}}`), metav1.PatchOptions{}, "status")
				return err
			})
		c.run(client, time.Hour, time.Hour)
		c.awaitPod("app", false)
		if p := workloadtest.Must(c.CoreV1().Pods("default").Get(t.Context(), "app",
			metav1.GetOptions{}))(t); p.Status.Message != "mine" {
			t.Errorf("the status of the kubelet was overwritten: %+v", p.Status)
		}
	})
}

// awaitTaints waits until a node without the condition Ready has exactly some taints. Admission
// gives it others.
func (c nodeLifecycleCluster) awaitTaints(name string, taints ...string) *corev1.Node {
	c.Helper()
	return workloadtest.Await(c.T, "taints of "+name, func(ctx context.Context) (*corev1.Node, error) {
		return c.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	}, func(n *corev1.Node) bool { return slices.Equal(nodeLifecycleTaints(n), taints) })
}

// TestNodeLifecycleRestart changes what there is while no controller runs.
func TestNodeLifecycleRestart(t *testing.T) {
	t.Parallel()
	c := nodeLifecycleAlone(t)
	for name, ready := range map[string]corev1.ConditionStatus{
		"recreated": corev1.ConditionTrue, "returns": corev1.ConditionFalse, "silent": "",
	} {
		workloadtest.OK(t, c.node(t.Context(), name, ready))
	}
	c.pod("app", "returns")
	events, stop := c.run(c, 100*time.Millisecond, 100*time.Millisecond)
	for _, name := range []string{"recreated", "returns", "silent"} {
		c.awaitNode(name, corev1.ConditionUnknown, corev1.TaintNodeUnreachable+":NoSchedule")
	}
	c.awaitPod("app", false)
	stop()
	// Only this node was ready before.
	for len(events) > 0 {
		if event := <-events; strings.Contains(event, "status is now") &&
			event != "Normal NodeNotReady Node recreated status is now: NodeNotReady" {
			t.Error(event)
		}
	}

	workloadtest.OK(t, c.node(t.Context(), "recreated", corev1.ConditionFalse))
	workloadtest.OK(t, c.post(t.Context(), "returns", corev1.ConditionTrue))
	workloadtest.OK(t, c.node(t.Context(), "new", corev1.ConditionTrue))
	c.pod("app", "recreated") // of another uid
	c.pod("kept", "returns")
	c.pod("silent", "silent")
	c.run(c, time.Hour, time.Hour)
	c.awaitNode("recreated", corev1.ConditionFalse, corev1.TaintNodeNotReady+":NoExecute",
		corev1.TaintNodeNotReady+":NoSchedule")
	c.awaitNode("returns", corev1.ConditionTrue)
	c.awaitNode("new", corev1.ConditionTrue)
	c.awaitPod("app", false)
	c.awaitPod("silent", false)
	c.awaitNode("silent", corev1.ConditionUnknown, corev1.TaintNodeUnreachable+":NoExecute",
		corev1.TaintNodeUnreachable+":NoSchedule")
	c.awaitPod("kept", true)
}
