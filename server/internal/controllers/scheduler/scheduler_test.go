package scheduler_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/scheduler"
	"github.com/kinproc/kinproc/server/servertest"
)

// patience is far longer than anything here takes.
const patience = 30 * time.Second

// cluster is a control plane with the given controllers.
type cluster struct {
	kubernetes.Interface
	tb     testing.TB
	config *rest.Config
}

// connect starts a control plane with the given controllers.
func connect(tb testing.TB, controllers ...string) cluster {
	tb.Helper()
	s := servertest.Run(tb, func(o *server.Options) {
		o.Controllers = append([]string{"serviceaccount-controller"}, controllers...)
	})
	config := rest.CopyConfig(s.RESTConfig())
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	return cluster{client, tb, config}
}

// node creates a node that is ready. Set may change it.
func (c cluster) node(name, cpu string, set ...func(*corev1.Node)) {
	c.tb.Helper()
	ctx := c.tb.Context()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelHostname: name},
	}}
	for _, set := range set {
		set(n)
	}
	created, err := c.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
	if err != nil {
		c.tb.Fatal(err)
	}
	created.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(cpu),
		corev1.ResourceMemory: resource.MustParse("16Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	created.Status.Capacity = created.Status.Allocatable
	created.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue,
	}}
	ready, err := c.CoreV1().Nodes().UpdateStatus(ctx, created, metav1.UpdateOptions{})
	if err != nil {
		c.tb.Fatal(err)
	}
	// Admission adds the taint of a node that is not ready.
	ready.Spec.Taints = n.Spec.Taints
	if _, err := c.CoreV1().Nodes().Update(ctx, ready, metav1.UpdateOptions{}); err != nil {
		c.tb.Fatal(err)
	}
}

func in(zone string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = zone }
}

// pod creates a pod that requests an amount of CPU. Set may change it.
func (c cluster) pod(name, cpu string, set ...func(*corev1.Pod)) *corev1.Pod {
	c.tb.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{
				Name: "c", Image: "i",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse(cpu),
				}},
			}},
		},
	}
	for _, set := range set {
		set(p)
	}
	var created *corev1.Pod
	// The service account of the namespace may not be there yet.
	err := wait.PollUntilContextTimeout(c.tb.Context(), time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			var err error
			created, err = c.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{})
			if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "service account") {
				return false, nil
			}
			return true, err
		})
	if err != nil {
		c.tb.Fatal(err)
	}
	return created
}

func labelled(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[key] = value }
}

func affinity(a corev1.Affinity) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Affinity = &a }
}

// terms returns the terms that select the pods with a label.
func terms(key, value, topologyKey string) []corev1.PodAffinityTerm {
	return []corev1.PodAffinityTerm{{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}},
		TopologyKey:   topologyKey,
	}}
}

// await waits until a pod is as wanted.
func (c cluster) await(name, what string, wanted func(*corev1.Pod) bool) *corev1.Pod {
	c.tb.Helper()
	var last *corev1.Pod
	err := wait.PollUntilContextTimeout(c.tb.Context(), 2*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			var err error
			last, err = c.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
			return err == nil && wanted(last), err
		})
	if err != nil {
		c.tb.Fatalf("pod %s is not %s: %v; on node %q, %+v", name, what, err, last.Spec.NodeName,
			last.Status)
	}
	return last
}

// on waits until a pod is on a node, and returns the name of the node.
func (c cluster) on(name string) string {
	c.tb.Helper()
	return c.await(name, "on a node", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }).
		Spec.NodeName
}

// refused waits until a pod is said to be unschedulable with a message.
func (c cluster) refused(name, message string) {
	c.tb.Helper()
	c.await(name, "refused with: "+message, func(p *corev1.Pod) bool {
		condition := conditionOf(p, corev1.PodScheduled)
		return condition.Status == corev1.ConditionFalse && condition.Message == message &&
			condition.Reason == corev1.PodReasonUnschedulable && p.Spec.NodeName == ""
	})
}

func conditionOf(p *corev1.Pod, conditionType corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == conditionType {
			return c
		}
	}
	return corev1.PodCondition{}
}

// event waits until there is an event about a pod with a note.
func (c cluster) event(name, reason, note string) {
	c.tb.Helper()
	var last []string
	err := wait.PollUntilContextTimeout(c.tb.Context(), 2*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			list, err := c.EventsV1().Events("default").List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			last = nil
			for _, e := range list.Items {
				last = append(last, fmt.Sprint(e.Regarding.Name, e.Reason, e.Note))
				if e.Regarding.Name == name && e.Reason == reason && e.Note == note &&
					e.ReportingController == "default-scheduler" {
					return true, nil
				}
			}
			return false, nil
		})
	if err != nil {
		c.tb.Fatalf("no event %s %s %q: %v; %q", name, reason, note, err, last)
	}
}

func (c cluster) delete(name string) {
	c.tb.Helper()
	if err := c.CoreV1().Pods("default").Delete(c.tb.Context(), name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
	}); err != nil {
		c.tb.Fatal(err)
	}
}

func (c cluster) patchNode(name, patch string) {
	c.tb.Helper()
	if _, err := c.CoreV1().Nodes().Patch(c.tb.Context(), name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}); err != nil {
		c.tb.Fatal(err)
	}
}

const unhelpful = " no new claims to deallocate, preemption: 0/%d nodes are available: " +
	"%d Preemption is not helpful for scheduling."

func TestSchedule(t *testing.T) {
	t.Parallel()
	c := connect(t, scheduler.Name)
	c.pod("first", "1")
	c.refused("first", "no nodes available to schedule pods")
	c.pod("other", "1", func(p *corev1.Pod) { p.Spec.SchedulerName = "other-scheduler" })
	c.pod("gated", "1", func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/gate"}}
	})
	c.node("small", "1500m")
	if got := c.on("first"); got != "small" {
		t.Errorf("the first pod is on %q", got)
	}
	c.event("first", "FailedScheduling", "no nodes available to schedule pods")
	c.event("first", "Scheduled", "Successfully assigned default/first to small")
	first := c.await("first", "scheduled", func(p *corev1.Pod) bool {
		return conditionOf(p, corev1.PodScheduled).Status == corev1.ConditionTrue
	})
	for _, m := range first.ManagedFields {
		if m.Manager != "kube-scheduler" && m.Subresource != "" {
			t.Errorf("%s wrote %s", m.Manager, m.Subresource)
		}
	}

	c.node("tainted", "8", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
	})
	c.node("cordoned", "8", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	c.node("labelled", "8", func(n *corev1.Node) { n.Labels["disk"] = "hdd" })
	c.patchNode("small", `{"metadata":{"labels":{"disk":"ssd"}}}`)
	c.patchNode("cordoned", `{"metadata":{"labels":{"disk":"ssd"}}}`)
	second := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }
	c.pod("second", "1", second)
	c.refused("second", "0/4 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's "+
		"node affinity/selector, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. "+
		"no new claims to deallocate, preemption: 0/4 nodes are available: 1 No preemption victims "+
		"found for incoming pod, 3 Preemption is not helpful for scheduling.")
	c.patchNode("cordoned", `{"spec":{"unschedulable":false}}`)
	if got := c.on("second"); got != "cordoned" {
		t.Errorf("the second pod is on %q", got)
	}

	// A pod that goes makes room.
	c.patchNode("cordoned", `{"spec":{"unschedulable":true}}`)
	c.pod("third", "1", second)
	c.refused("third", "0/4 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's "+
		"node affinity/selector, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. "+
		"no new claims to deallocate, preemption: 0/4 nodes are available: 1 No preemption victims "+
		"found for incoming pod, 3 Preemption is not helpful for scheduling.")
	c.delete("first")
	if got := c.on("third"); got != "small" {
		t.Errorf("the third pod is on %q", got)
	}

	gated := c.await("gated", "gated", func(p *corev1.Pod) bool { return p.Spec.NodeName == "" })
	if got := conditionOf(gated, corev1.PodScheduled); got.Reason != "SchedulingGated" {
		t.Errorf("the gated pod has the condition %+v", got)
	}
	if _, err := c.CoreV1().Pods("default").Patch(t.Context(), "gated", types.MergePatchType,
		[]byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.on("gated")
	c.await("other", "left alone", func(p *corev1.Pod) bool {
		return p.Spec.NodeName == "" && conditionOf(p, corev1.PodScheduled).Status == ""
	})
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	c := connect(t, scheduler.Name)
	c.node("a1", "4", in("a"))
	c.node("a2", "4", in("a"))
	c.node("b1", "4", in("b"))
	zone, host := corev1.LabelTopologyZone, corev1.LabelHostname

	// host ports
	port := func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	}
	used := map[string]bool{}
	for _, name := range []string{"port-0", "port-1", "port-2"} {
		c.pod(name, "10m", port)
		used[c.on(name)] = true
	}
	if len(used) != 3 {
		t.Errorf("the pods with the same port are on %v", used)
	}
	c.pod("port-3", "10m", port)
	c.refused("port-3", "0/3 nodes are available: 3 node(s) didn't have free ports for the "+
		"requested pod ports. no new claims to deallocate, preemption: 0/3 nodes are available: "+
		"3 No preemption victims found for incoming pod.")

	// affinity by node name, as of pods of DaemonSets
	byName := func(name string) func(*corev1.Pod) {
		return affinity(corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchFields: []corev1.NodeSelectorRequirement{{
						Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name},
					}},
				}},
			},
		}})
	}
	c.pod("named", "10m", byName("a2"))
	if got := c.on("named"); got != "a2" {
		t.Errorf("the pod for node a2 is on %s", got)
	}
	c.pod("named-large", "10", byName("a2"))
	c.refused("named-large", "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy "+
		"plugin(s) [NodeAffinity]."+fmt.Sprintf(unhelpful, 3, 3))

	// pods that want to be together; the first may go anywhere
	near := affinity(corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: terms("group", "near", host),
	}})
	first := ""
	for i := range 4 {
		name := fmt.Sprint("near-", i)
		c.pod(name, "10m", labelled("group", "near"), near)
		if first == "" {
			first = c.on(name)
		} else if got := c.on(name); got != first {
			t.Errorf("%s is on %s, the first on %s", name, got, first)
		}
	}
	c.pod("alone", "10m", affinity(corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: terms("group", "nobody", host),
	}}))
	c.refused("alone", "0/3 nodes are available: 3 node(s) didn't match pod affinity rules."+
		fmt.Sprintf(unhelpful, 3, 3))
	c.pod("somebody", "10m", labelled("group", "nobody"))
	if alone, somebody := c.on("alone"), c.on("somebody"); alone != somebody {
		t.Errorf("the pods are on %s and %s", alone, somebody)
	}

	// pods that want to be apart, and the other way around
	far := affinity(corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: terms("group", "far", zone),
	}})
	c.pod("far-0", "10m", labelled("group", "far"), far)
	c.pod("far-1", "10m", labelled("group", "far"), far)
	if one, other := c.on("far-0"), c.on("far-1"); one[0] == other[0] {
		t.Errorf("the pods that want to be apart are on %s and %s", one, other)
	}
	c.pod("far-2", "10m", labelled("group", "far"))
	c.refused("far-2", "0/3 nodes are available: 3 node(s) didn't satisfy existing pods "+
		"anti-affinity rules. no new claims to deallocate, preemption: 0/3 nodes are available: "+
		"3 No preemption victims found for incoming pod.")
	c.pod("far-3", "10m", far)
	c.refused("far-3", "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules. "+
		"no new claims to deallocate, preemption: 0/3 nodes are available: 3 No preemption victims "+
		"found for incoming pod.")

	// spread
	spread := func(minDomains *int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Labels["group"] = "spread"
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: zone, WhenUnsatisfiable: corev1.DoNotSchedule,
				MinDomains:    minDomains,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"group": "spread"}},
			}}
		}
	}
	zones := map[byte]int{}
	for i := range 6 {
		name := fmt.Sprint("spread-", i)
		c.pod(name, "10m", spread(nil))
		zones[c.on(name)[0]]++
	}
	if zones['a'] != 3 || zones['b'] != 3 {
		t.Errorf("the zones have %v pods", zones)
	}
	c.pod("domains", "10m", spread(new(int32(3))))
	c.refused("domains", "0/3 nodes are available: 3 node(s) didn't match pod topology spread "+
		"constraints. no new claims to deallocate, preemption: 0/3 nodes are available: 3 No "+
		"preemption victims found for incoming pod.")

	// preferences
	c.pod("preferring", "10m", affinity(corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 100,
			Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: zone, Operator: corev1.NodeSelectorOpIn, Values: []string{"b"},
			}}},
		}},
	}}))
	if got := c.on("preferring"); got != "b1" {
		t.Errorf("the pod that prefers zone b is on %s", got)
	}
	owned := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "r", Controller: new(true),
		}}
	}
	used = map[string]bool{}
	for _, name := range []string{"owned-0", "owned-1", "owned-2"} {
		c.pod(name, "10m", owned)
		used[c.on(name)] = true
	}
	if len(used) != 3 {
		t.Errorf("the pods of one owner are on %v", used)
	}
}

// TestRecreated deletes pods while they are scheduled, and creates others with the same names.
func TestRecreated(t *testing.T) {
	t.Parallel()
	c := connect(t, scheduler.Name)
	c.node("old", "100")
	c.node("new", "100")
	only := func(node string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		}
	}
	const pods = 30
	for i := range pods {
		name := fmt.Sprint("pod-", i)
		c.pod(name, "1", only("old"))
		c.delete(name)
		c.pod(name, "1", only("new"))
	}
	for i := range pods {
		if name := fmt.Sprint("pod-", i); c.on(name) != "new" {
			t.Errorf("%s is on the node of the pod that had its name before", name)
		}
	}
	// Nothing is left of the deleted pods.
	c.pod("whole", "100", only("old"))
	c.on("whole")
}

// run runs a scheduler alone, on informers of client-go, until stop is called. Set may change it.
func run(
	tb testing.TB, client kubernetes.Interface, set ...func(*scheduler.Scheduler),
) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	factory := informers.NewSharedInformerFactory(client, 0)
	ended := make(chan error)
	s := scheduler.New(scheduler.Dependencies{Client: client, Informers: factory})
	for _, set := range set {
		set(s)
	}
	go func() { ended <- s.Run(ctx) }()
	return func() {
		tb.Helper()
		cancel()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
		factory.Shutdown()
	}
}

// TestRestart stops a scheduler in the middle and starts another one.
func TestRestart(t *testing.T) {
	t.Parallel()
	c := connect(t)
	const nodes, pods = 5, 60
	for i := range nodes {
		c.node(fmt.Sprint("node-", i), "10")
	}
	for i := range pods {
		c.pod(fmt.Sprint("pod-", i), "1")
	}
	bound := func() map[string]int {
		t.Helper()
		list, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		counts := map[string]int{}
		for _, p := range list.Items {
			counts[p.Spec.NodeName]++
		}
		return counts
	}
	runUntil := func(done func() bool) {
		t.Helper()
		defer run(t, c)()
		if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, patience, true,
			func(context.Context) (bool, error) { return done(), nil }); err != nil {
			t.Fatalf("%v; %v", err, bound())
		}
	}
	runUntil(func() bool { return pods-bound()[""] > 0 })
	runUntil(func() bool { return pods-bound()[""] == 10*nodes })
	for node, n := range bound() {
		if n != 10 {
			t.Errorf("%q has %d pods of %d", node, n, 10)
		}
	}
}

// TestPatience has a pod that is tried again although nothing has happened that helps it.
func TestPatience(t *testing.T) {
	t.Parallel()
	c := connect(t)
	defer run(t, c, func(s *scheduler.Scheduler) { s.Patience = 100 * time.Millisecond })()
	refused := func(nodes int) {
		t.Helper()
		c.refused("pod", fmt.Sprintf("0/%d nodes are available: %d node(s) didn't match Pod's node "+
			"affinity/selector."+unhelpful, nodes, nodes, nodes, nodes))
	}
	c.node("first", "1")
	c.pod("pod", "1", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} })
	refused(1)
	c.node("second", "1")
	refused(2)
}
