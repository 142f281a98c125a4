package looptest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/apps/daemonsets"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

var daemonsetControllers = []string{daemonsets.Name}

// daemonsetAgent returns the DaemonSet "agent".
func daemonsetAgent() *appsv1.DaemonSet {
	labels := map[string]string{"app": "agent"}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: workloadtest.Template(labels),
		},
	}
}

// daemonsetCluster is a control plane with nodes and a DaemonSet.
type daemonsetCluster struct {
	workloadtest.Workload[*appsv1.DaemonSet]
}

func daemonsetConnect(t testing.TB, client kubernetes.Interface) daemonsetCluster {
	return daemonsetCluster{workloadtest.Workload[*appsv1.DaemonSet]{
		TB: t, Client: client, Namespace: workloadtest.Namespace, App: "agent",
		API: client.AppsV1().DaemonSets(workloadtest.Namespace),
	}}
}

func (c daemonsetCluster) node(name string, labels map[string]string, taints ...corev1.Taint) {
	c.Helper()
	nodes := c.Client.CoreV1().Nodes()
	node := workloadtest.Must(nodes.Create(c.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
	}, metav1.CreateOptions{}))(c)
	// Admission taints a new node.
	node.Spec.Taints = taints
	workloadtest.Must(nodes.Update(c.Context(), node, metav1.UpdateOptions{}))(c)
}

// await gets the set until its controller has seen it and it is as wanted.
func (c daemonsetCluster) await(
	what string, wanted func(*appsv1.DaemonSet) bool,
) *appsv1.DaemonSet {
	c.Helper()
	return c.Await(what, func(s *appsv1.DaemonSet) bool {
		return s.Status.ObservedGeneration == s.Generation && wanted(s)
	})
}

// daemonsetOnThreeNodes starts a control plane with the nodes a, b and c. Pods with the second
// image become ready only when the test says so.
func daemonsetOnThreeNodes(t *testing.T) daemonsetCluster {
	t.Helper()
	_, client := workloadtest.Run(t, daemonsetControllers)
	workloadtest.Kubelet(t, client, workloadtest.Namespace, func(p *corev1.Pod) bool {
		return p.Spec.Containers[0].Image != "i:2"
	})
	c := daemonsetConnect(t, client)
	for _, name := range []string{"a", "b", "c"} {
		c.node(name, nil)
	}
	return c
}

// updated awaits the end of a rollout.
func (c daemonsetCluster) updated(n int32) *appsv1.DaemonSet {
	c.Helper()
	return c.await("an update", func(s *appsv1.DaemonSet) bool {
		return s.Status.DesiredNumberScheduled == n && s.Status.UpdatedNumberScheduled == n &&
			s.Status.NumberAvailable == n && s.Status.NumberUnavailable == 0
	})
}

func daemonsetNode(pod *corev1.Pod) string {
	return pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.
		NodeSelectorTerms[0].MatchFields[0].Values[0]
}

// pods returns the pods as node=image.
func (c daemonsetCluster) pods() []string {
	c.Helper()
	return c.Pods(daemonsetNode)
}

func (c daemonsetCluster) awaitPods(want ...string) {
	c.Helper()
	c.AwaitPods(daemonsetNode, want...)
}

func TestDaemonSetPlacement(t *testing.T) {
	t.Parallel()
	_, client := workloadtest.Run(t, daemonsetControllers)
	workloadtest.Kubelet(t, client, workloadtest.Namespace)
	c := daemonsetConnect(t, client)
	linux := map[string]string{"os": "linux"}
	c.node("a", linux)
	c.node("other", map[string]string{"os": "plan9"})
	c.node("cordoned", linux, corev1.Taint{
		Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule,
	})
	c.node("tainted", linux, corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoSchedule})
	s := daemonsetAgent()
	s.Spec.Template.Spec.NodeSelector = linux
	c.Create(s)
	c.awaitPods("a=i:1", "cordoned=i:1")
	c.updated(2)
	pod := workloadtest.Pods(t, client, c.Namespace, "app=agent")[0]
	var tolerated []string
	for _, toleration := range pod.Spec.Tolerations {
		if toleration.Operator == corev1.TolerationOpExists && toleration.TolerationSeconds == nil {
			tolerated = append(tolerated, fmt.Sprint(toleration.Key, ":", toleration.Effect))
		}
	}
	if want := []string{
		"node.kubernetes.io/not-ready:NoExecute", "node.kubernetes.io/unreachable:NoExecute",
		"node.kubernetes.io/disk-pressure:NoSchedule", "node.kubernetes.io/memory-pressure:NoSchedule",
		"node.kubernetes.io/pid-pressure:NoSchedule", "node.kubernetes.io/unschedulable:NoSchedule",
	}; !slices.Equal(tolerated, want) {
		t.Errorf("the pod tolerates %v, want %v", tolerated, want)
	}
	if hash := pod.Labels["controller-revision-hash"]; hash == "" ||
		workloadtest.Must(client.AppsV1().ControllerRevisions("default").Get(t.Context(), "agent-"+hash,
			metav1.GetOptions{}))(t).Labels["controller-revision-hash"] != hash {
		t.Errorf("the labels are %v", pod.Labels)
	}

	// A taint that keeps pods away does not drive out one that is there, but its node is not to
	// have one any more.
	taint := func(name, effect string) {
		t.Helper()
		workloadtest.Must(client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType,
			[]byte(`{"spec":{"taints":[{"key":"mine","effect":"`+effect+`"}]}}`), metav1.PatchOptions{}))(t)
	}
	taint("a", "NoSchedule")
	c.await("a misscheduled pod", func(s *appsv1.DaemonSet) bool {
		return s.Status.NumberMisscheduled == 1 && s.Status.DesiredNumberScheduled == 1
	})
	c.awaitPods("a=i:1", "cordoned=i:1")
	taint("a", "NoExecute")
	c.awaitPods("cordoned=i:1")
	// A new node gets a pod, and that of a node that is gone goes.
	c.node("b", linux)
	if err := client.CoreV1().Nodes().Delete(t.Context(), "cordoned",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitPods("b=i:1")
	// A failed pod is made again. Before, it must have been made to run.
	pods := func(context.Context) ([]corev1.Pod, error) {
		return workloadtest.Pods(t, client, c.Namespace, "app=agent"), nil
	}
	workloadtest.Await(t, "a running pod", pods, func(pods []corev1.Pod) bool {
		return len(pods) == 1 && pods[0].Status.Phase == corev1.PodRunning
	})
	pod = workloadtest.Pods(t, client, c.Namespace, "app=agent")[0]
	workloadtest.Must(client.CoreV1().Pods("default").Patch(t.Context(), pod.Name,
		types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{},
		"status"))(t)
	workloadtest.Await(t, "another pod", pods, func(pods []corev1.Pod) bool {
		return len(pods) == 1 && pods[0].UID != pod.UID
	})
}

func TestDaemonSetRollingUpdate(t *testing.T) {
	t.Parallel()
	c := daemonsetOnThreeNodes(t)
	s := daemonsetAgent()
	s.Spec.RevisionHistoryLimit = new(int32(1))
	c.Create(s)
	c.updated(3)
	c.Image("i:2")
	for i := range 3 {
		var pod corev1.Pod
		workloadtest.Await(t, "a new pod", func(context.Context) (int, error) {
			var n int
			list := workloadtest.Pods(t, c.Client, c.Namespace, "app=agent")
			for _, p := range list {
				if p.Spec.Containers[0].Image == "i:2" {
					if n++; len(p.Status.Conditions) == 0 {
						pod = p
					}
				}
			}
			if n > i+1 || len(list) < 2 {
				t.Errorf("there are %d new ones among %d pods", n, len(list))
			}
			return n, nil
		}, func(n int) bool { return n == i+1 && pod.Name != "" })
		if err := workloadtest.Ready(t.Context(), c.Client, &pod, true); err != nil {
			t.Fatal(err)
		}
	}
	c.updated(3)

	// With a surge, the new pod is there first.
	c.Patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"maxSurge":3,"maxUnavailable":0}}}}`)
	c.updated(3)
	c.Image("i:3")
	c.updated(3)
	c.awaitPods("a=i:3", "b=i:3", "c=i:3")

	// With OnDelete, nothing happens by itself.
	c.Patch(`{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`)
	c.Image("i:1")
	c.await("no updated pods", func(s *appsv1.DaemonSet) bool {
		return s.Status.UpdatedNumberScheduled == 0
	})
	c.awaitPods("a=i:3", "b=i:3", "c=i:3")
	if err := c.Client.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "app=agent"}); err != nil {
		t.Fatal(err)
	}
	c.updated(3)
	c.awaitPods("a=i:1", "b=i:1", "c=i:1")
	// The first revision is the latest again, and only one old one is kept.
	var numbers []int64
	revisions := c.Client.AppsV1().ControllerRevisions("default")
	for _, r := range workloadtest.Must(revisions.List(t.Context(),
		metav1.ListOptions{}))(t).Items {
		numbers = append(numbers, r.Revision)
	}
	if slices.Sort(numbers); !slices.Equal(numbers, []int64{3, 4}) {
		t.Errorf("the revisions are %v", numbers)
	}
}

// Surges are limited: old pods stay until new ones are available.
func TestDaemonSetSurge(t *testing.T) {
	t.Parallel()
	c := daemonsetOnThreeNodes(t)
	s := daemonsetAgent()
	s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{
		MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0)),
	}
	c.Create(s)
	c.updated(3)
	c.Image("i:2")
	c.awaitPods("a=i:1", "a=i:2", "b=i:1", "c=i:1")
	for _, pod := range workloadtest.Pods(t, c.Client, c.Namespace, "app=agent") {
		if pod.Spec.Containers[0].Image == "i:2" {
			if err := workloadtest.Ready(t.Context(), c.Client, &pod, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.awaitPods("a=i:2", "b=i:1", "b=i:2", "c=i:1")
}

// A DaemonSet that is deleted and created again has pods and revisions of its own. A status that
// somebody else writes is put right.
func TestDaemonSetRecreated(t *testing.T) {
	t.Parallel()
	c := daemonsetOnThreeNodes(t)
	sets := c.Client.AppsV1().DaemonSets("default")
	c.Create(daemonsetAgent())
	first := c.updated(3)
	workloadtest.OK(t, sets.Delete(t.Context(), "agent", metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	}))
	c.Create(daemonsetAgent())
	second := c.updated(3)
	workloadtest.Until(t, func(ctx context.Context) string {
		pods := workloadtest.Pods(t, c.Client, c.Namespace, "app=agent")
		var mine []string
		for _, pod := range pods {
			switch metav1.GetControllerOf(&pod).UID {
			case second.UID:
				mine = append(mine, daemonsetNode(&pod))
			case first.UID:
			default:
				t.Errorf("%s has the owners %v", pod.Name, pod.OwnerReferences)
			}
		}
		slices.Sort(mine)
		revisions := workloadtest.Must(c.Client.AppsV1().ControllerRevisions("default").List(ctx,
			metav1.ListOptions{}))(t).Items
		if len(pods) != 3 || !slices.Equal(mine, []string{"a", "b", "c"}) || len(revisions) != 1 ||
			!metav1.IsControlledBy(&revisions[0], second) {
			return fmt.Sprintf("the pods are on %v, of %d; the revisions are %v", mine, len(pods),
				revisions)
		}
		return ""
	})
	workloadtest.Must(sets.Patch(t.Context(), "agent", types.MergePatchType,
		[]byte(`{"status":{"numberReady":9,"numberAvailable":0}}`), metav1.PatchOptions{}, "status"))(t)
	c.await("the status", func(s *appsv1.DaemonSet) bool {
		return s.Status.NumberReady == 3 && s.Status.NumberAvailable == 3
	})
}

// daemonsetRun runs a controller alone, on informers of its own, until stop is called or the test
// ends. Events get the events that it records.
func daemonsetRun(t *testing.T, client kubernetes.Interface) (events <-chan string, stop func()) {
	t.Helper()
	d, events := workloadtest.Dependencies(client)
	return events, workloadtest.Start(t, d, daemonsets.Loop())
}

// A revision of somebody else that has the name of a new one is deleted just when the controller
// looks whose it is.
func TestDaemonSetNameFreed(t *testing.T) {
	t.Parallel()
	s, client := workloadtest.Alone(t)
	c := daemonsetConnect(t, client)
	revisions := c.Client.AppsV1().ControllerRevisions("default")
	list := func(ctx context.Context) (*appsv1.ControllerRevisionList, error) {
		return revisions.List(ctx, metav1.ListOptions{})
	}
	one := func(list *appsv1.ControllerRevisionList) bool { return len(list.Items) == 1 }
	_, stop := daemonsetRun(t, c.Client)
	c.Create(daemonsetAgent())
	taken := workloadtest.Await(t, "a revision", list, one).Items[0].Name
	stop()
	workloadtest.OK(t, c.Client.AppsV1().DaemonSets("default").Delete(t.Context(), "agent",
		metav1.DeleteOptions{}))
	workloadtest.Must(revisions.Patch(t.Context(), taken, types.MergePatchType,
		[]byte(`{"metadata":{"labels":null,"ownerReferences":null}}`), metav1.PatchOptions{}))(t)
	client, done := workloadtest.Meanwhile(t, s, "GET", "/controllerrevisions/"+taken,
		func(ctx context.Context) error { return revisions.Delete(ctx, taken, metav1.DeleteOptions{}) })
	daemonsetRun(t, client)
	c.Create(daemonsetAgent())
	<-done
	workloadtest.Await(t, "a revision", list, one)
}

// A DaemonSet in a namespace that is being deleted gets no pods, which is not a failure.
func TestDaemonSetDyingNamespace(t *testing.T) {
	t.Parallel()
	// Nothing deletes what is in the namespace.
	s, client := workloadtest.Alone(t)
	namespaces := client.CoreV1().Namespaces()
	workloadtest.Must(namespaces.Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dying"}}, metav1.CreateOptions{}))(t)
	workloadtest.ServiceAccount(t, client, "dying")
	workloadtest.Must(client.AppsV1().DaemonSets("dying").Create(t.Context(), daemonsetAgent(),
		metav1.CreateOptions{}))(t)
	counted, done := workloadtest.Meanwhile(t, s, "POST", "/namespaces/dying/pods",
		func(context.Context) error { return nil })
	events, stop := daemonsetRun(t, counted)
	workloadtest.Await(t, "a revision",
		func(ctx context.Context) (*appsv1.ControllerRevisionList, error) {
			return client.AppsV1().ControllerRevisions("dying").List(ctx, metav1.ListOptions{})
		}, func(list *appsv1.ControllerRevisionList) bool { return len(list.Items) == 1 })
	workloadtest.OK(t, namespaces.Delete(t.Context(), "dying", metav1.DeleteOptions{}))
	c := daemonsetConnect(t, client)
	c.node("a", nil)
	<-done
	c.Create(daemonsetAgent())
	c.awaitPods("a=i:1")
	stop()
	for len(events) > 0 {
		if event := <-events; strings.Contains(event, "Failed") {
			t.Error(event)
		}
	}
}

func TestDaemonSetRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	configure := func(o *server.Options) { o.DataDir = dir }
	s, client := workloadtest.Run(t, daemonsetControllers, configure)
	c := daemonsetConnect(t, client)
	for i := range 50 {
		c.node(fmt.Sprintf("n%02d", i), nil)
	}
	c.Create(daemonsetAgent())
	workloadtest.Await(t, "some pods", func(context.Context) (int, error) {
		return len(c.pods()), nil
	}, func(n int) bool { return n > 5 })
	if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	_, client = workloadtest.Run(t, daemonsetControllers, configure)
	c = daemonsetConnect(t, client)
	workloadtest.Kubelet(t, client, workloadtest.Namespace)
	c.updated(50)
	if pods := c.pods(); len(pods) != 50 || len(slices.Compact(pods)) != 50 {
		t.Errorf("the pods are on %v", pods)
	}
}

// A pod that has to go goes even while a quota refuses the pod that has to come.
func TestDaemonSetQuota(t *testing.T) {
	t.Parallel()
	_, client := workloadtest.Run(t, daemonsetControllers)
	c := daemonsetConnect(t, client)
	c.node("a", nil)
	c.Create(daemonsetAgent())
	c.awaitPods("a=i:1")
	quotas := client.CoreV1().ResourceQuotas("default")
	hard := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
	quota := workloadtest.Must(quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}, metav1.CreateOptions{}))(t)
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: hard}
	workloadtest.Must(quotas.UpdateStatus(t.Context(), quota, metav1.UpdateOptions{}))(t)
	workloadtest.Until(t, func(ctx context.Context) string {
		if _, err := client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "any"}, Spec: daemonsetAgent().Spec.Template.Spec,
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
			return "the quota is not enforced yet"
		}
		return ""
	})
	c.node("b", nil)
	workloadtest.OK(t, client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}))
	c.awaitPods()
	workloadtest.OK(t, quotas.Delete(t.Context(), "one", metav1.DeleteOptions{}))
	c.awaitPods("b=i:1")
}
