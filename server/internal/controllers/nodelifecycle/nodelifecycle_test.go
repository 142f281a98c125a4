package nodelifecycle_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/nodelifecycle"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// run runs a controller with short graces on its own informers, until stop is called or the test
// ends.
func run(t *testing.T, client kubernetes.Interface) (stop func()) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(client, 0)
	c := nodelifecycle.New(client, record.NewFakeRecorder(1000), factory)
	c.Grace, c.StartupGrace = 2*time.Second, 3*time.Second
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error)
	factory.StartWithContext(ctx)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		factory.Shutdown()
	})
	t.Cleanup(stop)
	return stop
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
		var has []string
		for _, t := range n.Spec.Taints {
			has = append(has, t.Key+":"+string(t.Effect))
		}
		slices.Sort(has)
		c := condition(n, corev1.NodeReady)
		if c == nil || c.Status != ready || !slices.Equal(has, taints) {
			return fmt.Sprintf("ready %+v, taints %v", c, has)
		}
		return ""
	})
	return n
}

func podsReady(client kubernetes.Interface, want bool) func(context.Context) string {
	return func(ctx context.Context) string {
		p, err := client.CoreV1().Pods("default").Get(ctx, "app", metav1.GetOptions{})
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
	workloadtest.Until(t, podsReady(client, true))
	stopped := func(value string) {
		t.Helper()
		_, err := client.CoreV1().Nodes().Patch(t.Context(), "simulated-0", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"kinproc.dev/stopped":`+value+`}}}`), metav1.PatchOptions{})
		workloadtest.OK(t, err)
	}
	stopped(`"true"`)
	stop := run(t, client)
	n := awaitNode(t, client, "simulated-0", corev1.ConditionUnknown,
		"node.kubernetes.io/unreachable:NoExecute", "node.kubernetes.io/unreachable:NoSchedule")
	if c := condition(n, corev1.NodeMemoryPressure); c.Status != corev1.ConditionUnknown ||
		c.Reason != "NodeStatusUnknown" || n.Spec.Taints[0].TimeAdded == nil {
		t.Errorf("the node is %+v", n)
	}
	workloadtest.Until(t, podsReady(client, false))
	stop() // its patience is shorter than a node needs
	stopped("null")
	awaitNode(t, client, "simulated-0", corev1.ConditionTrue)
	workloadtest.Until(t, podsReady(client, true))
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
	run(t, client)
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
	// Nobody renews its lease.
	awaitNode(t, client, "n", corev1.ConditionUnknown, "mine:NoSchedule",
		"node.kubernetes.io/unreachable:NoExecute", "node.kubernetes.io/unreachable:NoSchedule")
}
