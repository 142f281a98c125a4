package nodelifecycle_test

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
	"github.com/kinproc/kinproc/server/internal/controllers/nodelifecycle"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// run runs a controller on its own informers, until stop is called or the test ends. Nodes may not
// be heard of for a grace. Events get the events that it records.
func run(
	t *testing.T, client kubernetes.Interface, grace, startupGrace time.Duration,
) (events <-chan string, stop func()) {
	t.Helper()
	d, events := workloadtest.Dependencies(client)
	c := nodelifecycle.New(d)
	c.Grace, c.StartupGrace = grace, startupGrace
	return events, workloadtest.Start(t, d.Informers, c)
}

func taintsOf(n *corev1.Node) []string {
	var taints []string
	for _, t := range n.Spec.Taints {
		taints = append(taints, t.Key+":"+string(t.Effect))
	}
	slices.Sort(taints)
	return taints
}

// awaitNode waits until a node has a status of readiness and exactly some taints.
func awaitNode(
	t *testing.T, client kubernetes.Interface, name string, ready corev1.ConditionStatus,
	taints ...string,
) *corev1.Node {
	t.Helper()
	var n *corev1.Node
	workloadtest.Until(t, func(ctx context.Context) string {
		var err error
		if n, err = client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		has := taintsOf(n)
		c := condition(n, corev1.NodeReady)
		if c == nil || c.Status != ready || !slices.Equal(has, taints) {
			return fmt.Sprintf("ready %+v, taints %v", c, has)
		}
		return ""
	})
	return n
}

func podsReady(
	client kubernetes.Interface, name string, want bool,
) func(context.Context) string {
	return func(ctx context.Context) string {
		p, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil || podReady(p) != want {
			return fmt.Sprintf("%v: %+v", err, p)
		}
		return ""
	}
}

// TestUnreachable has a node that stops and comes back, with a pod.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) { o.SimulatedNodes = 1 })
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	awaitNode(t, client, "simulated-0", corev1.ConditionTrue)
	_, err := client.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "app"},
		Spec: corev1.PodSpec{
			NodeName: "simulated-0", Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
	}, metav1.CreateOptions{})
	workloadtest.OK(t, err)
	workloadtest.Until(t, podsReady(client, "app", true))
	stopped := func(value string) {
		t.Helper()
		_, err := client.CoreV1().Nodes().Patch(t.Context(), "simulated-0", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"kinproc.dev/stopped":`+value+`}}}`), metav1.PatchOptions{})
		workloadtest.OK(t, err)
	}
	stopped(`"true"`)
	_, stop := run(t, client, 2*time.Second, 3*time.Second)
	n := awaitNode(t, client, "simulated-0", corev1.ConditionUnknown,
		"node.kubernetes.io/unreachable:NoExecute", "node.kubernetes.io/unreachable:NoSchedule")
	if c := condition(n, corev1.NodeMemoryPressure); c.Status != corev1.ConditionUnknown ||
		c.Reason != "NodeStatusUnknown" || n.Spec.Taints[0].TimeAdded == nil {
		t.Errorf("the node is %+v", n)
	}
	workloadtest.Until(t, podsReady(client, "app", false))
	stop() // its patience is shorter than a node needs
	stopped("null")
	awaitNode(t, client, "simulated-0", corev1.ConditionTrue)
	workloadtest.Until(t, podsReady(client, "app", true))
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func condition(n *corev1.Node, of corev1.NodeConditionType) *corev1.NodeCondition {
	i := slices.IndexFunc(n.Status.Conditions,
		func(c corev1.NodeCondition) bool { return c.Type == of })
	if i < 0 {
		return nil
	}
	return &n.Status.Conditions[i]
}

// TestConditionsBecomeTaints has a node of somebody else, and a taint that is none of the
// controller's business.
func TestConditionsBecomeTaints(t *testing.T) {
	t.Parallel()
	client := kubernetes.NewForConfigOrDie(servertest.Run(t).RESTConfig())
	_, stop := run(t, client, time.Hour, time.Hour)
	_, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
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
	awaitNode(t, client, "n", corev1.ConditionFalse, "mine:NoSchedule",
		"node.kubernetes.io/disk-pressure:NoSchedule", "node.kubernetes.io/not-ready:NoExecute",
		"node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/unschedulable:NoSchedule")
	_, err = client.CoreV1().Nodes().Patch(t.Context(), "n", types.StrategicMergePatchType,
		[]byte(`{"spec":{"unschedulable":null}}`), metav1.PatchOptions{})
	workloadtest.OK(t, err)
	awaitNode(t, client, "n", corev1.ConditionFalse, "mine:NoSchedule",
		"node.kubernetes.io/disk-pressure:NoSchedule", "node.kubernetes.io/not-ready:NoExecute",
		"node.kubernetes.io/not-ready:NoSchedule")
	stop()

	// Nobody renews its lease.
	run(t, client, 2*time.Second, 3*time.Second)
	awaitNode(t, client, "n", corev1.ConditionUnknown, "mine:NoSchedule",
		"node.kubernetes.io/unreachable:NoExecute", "node.kubernetes.io/unreachable:NoSchedule")
}

type cluster struct{ workloadtest.Cluster }

func start(t *testing.T) cluster {
	t.Helper()
	return cluster{workloadtest.NewCluster(t)}
}

// node creates a node instead of an earlier one. Ready is the status of its condition, which it has
// not if this is empty.
func (c cluster) node(ctx context.Context, name string, ready corev1.ConditionStatus) error {
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
func (c cluster) post(ctx context.Context, name string, ready corev1.ConditionStatus) error {
	_, err := c.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q,
		"lastHeartbeatTime":"2020-01-01T00:00:00Z"}]}}`, ready), metav1.PatchOptions{}, "status")
	return err
}

// pod creates a pod on a node that is ready, instead of an earlier one.
func (c cluster) pod(name, node string) {
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

const (
	notReady    = "node.kubernetes.io/not-ready"
	unreachable = "node.kubernetes.io/unreachable"
)

// TestRaces changes something when the controller is about to write.
func TestRaces(t *testing.T) {
	t.Parallel()
	const short = 200 * time.Millisecond
	// goesOn waits until the controller has done something else.
	goesOn := func(c cluster) {
		c.Helper()
		workloadtest.OK(c.T, c.node(c.Context(), "other", ""))
		awaitTaints(c.T, c, "other")
	}
	t.Run("node recreated", func(t *testing.T) {
		t.Parallel()
		c := start(t)
		workloadtest.OK(t, c.node(t.Context(), "n", corev1.ConditionTrue))
		client, done := workloadtest.Meanwhile(t, c.Server, "PUT", "/nodes/n/status",
			func(ctx context.Context) error { return c.node(ctx, "n", "") })
		run(t, client, short, time.Hour)
		<-done
		goesOn(c)
		n := awaitTaints(t, c, "n")
		if len(n.Status.Conditions) > 0 {
			t.Errorf("the node got the conditions %+v", n.Status.Conditions)
		}
	})
	t.Run("node ready again", func(t *testing.T) {
		t.Parallel()
		c := start(t)
		workloadtest.OK(t, c.node(t.Context(), "n", corev1.ConditionFalse))
		client, done := workloadtest.Meanwhile(t, c.Server, "PUT", "/nodes/n",
			func(ctx context.Context) error { return c.post(ctx, "n", corev1.ConditionTrue) })
		run(t, client, time.Hour, time.Hour)
		<-done
		goesOn(c)
		awaitNode(t, c, "n", corev1.ConditionTrue)
	})
	t.Run("pod written", func(t *testing.T) {
		t.Parallel()
		c := start(t)
		workloadtest.OK(t, c.node(t.Context(), "n", corev1.ConditionFalse))
		c.pod("app", "n")
		client, _ := workloadtest.Meanwhile(t, c.Server, "PUT", "/pods/app/status",
			func(ctx context.Context) error {
				_, err := c.CoreV1().Pods("default").Patch(ctx, "app", types.MergePatchType,
					[]byte(`{"status":{"message":"mine"}}`), metav1.PatchOptions{}, "status")
				return err
			})
		run(t, client, time.Hour, time.Hour)
		workloadtest.Until(t, podsReady(c, "app", false))
		if p := workloadtest.Must(c.CoreV1().Pods("default").Get(t.Context(), "app",
			metav1.GetOptions{}))(t); p.Status.Message != "mine" {
			t.Errorf("the status of the kubelet was overwritten: %+v", p.Status)
		}
	})
}

// awaitTaints waits until a node without the condition Ready has exactly some taints. Admission
// gives it others.
func awaitTaints(
	t *testing.T, client kubernetes.Interface, name string, taints ...string,
) *corev1.Node {
	t.Helper()
	return workloadtest.Await(t, "taints of "+name, func(ctx context.Context) (*corev1.Node, error) {
		return client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	}, func(n *corev1.Node) bool { return slices.Equal(taintsOf(n), taints) })
}

// TestRestart changes what there is while no controller runs.
func TestRestart(t *testing.T) {
	t.Parallel()
	c := start(t)
	for name, ready := range map[string]corev1.ConditionStatus{
		"recreated": corev1.ConditionTrue, "returns": corev1.ConditionFalse, "silent": "",
	} {
		workloadtest.OK(t, c.node(t.Context(), name, ready))
	}
	c.pod("app", "returns")
	events, stop := run(t, c, 100*time.Millisecond, 100*time.Millisecond)
	for _, name := range []string{"recreated", "returns", "silent"} {
		awaitNode(t, c, name, corev1.ConditionUnknown, unreachable+":NoExecute",
			unreachable+":NoSchedule")
	}
	workloadtest.Until(t, podsReady(c, "app", false))
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
	run(t, c, time.Hour, time.Hour)
	awaitNode(t, c, "recreated", corev1.ConditionFalse, notReady+":NoExecute",
		notReady+":NoSchedule")
	awaitNode(t, c, "returns", corev1.ConditionTrue)
	awaitNode(t, c, "new", corev1.ConditionTrue)
	workloadtest.Until(t, podsReady(c, "app", false))
	workloadtest.Until(t, podsReady(c, "silent", false))
	awaitNode(t, c, "silent", corev1.ConditionUnknown, unreachable+":NoExecute",
		unreachable+":NoSchedule")
	workloadtest.Until(t, podsReady(c, "kept", true))
}
