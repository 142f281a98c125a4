package looptest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/nodes/scheduler"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// schedulerCluster is a control plane with the given controllers.
type schedulerCluster struct {
	kubernetes.Interface
	tb     testing.TB
	server *server.Server
}

// schedulerConnect starts a control plane with the given controllers.
func schedulerConnect(tb testing.TB, controllers ...string) schedulerCluster {
	tb.Helper()
	return schedulerRunning(tb, func(o *server.Options) {
		o.Controllers = append(o.Controllers, controllers...)
	})
}

// schedulerRunning is like schedulerConnect with options.
func schedulerRunning(tb testing.TB, set func(*server.Options)) schedulerCluster {
	tb.Helper()
	s := servertest.Run(tb, func(o *server.Options) {
		o.Controllers = []string{"serviceaccount-controller"}
		// Informers that do not read from etcd need the version in which DeviceTaintRules are
		// stored.
		o.RuntimeConfig = map[string]string{"resource.k8s.io/v1beta2": "true"}
	}, set)
	return schedulerCluster{workloadtest.Client(tb, s), tb, s}
}

// node creates a node that is ready. Set may change it.
func (c schedulerCluster) node(name, cpu string, set ...func(*corev1.Node)) {
	c.tb.Helper()
	ctx := c.tb.Context()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelHostname: name},
	}}
	for _, set := range set {
		set(n)
	}
	created := workloadtest.Must(c.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}))(c.tb)
	created.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(cpu),
		corev1.ResourceMemory: resource.MustParse("16Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	created.Status.Capacity = created.Status.Allocatable
	created.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue,
	}}
	ready := workloadtest.Must(c.CoreV1().Nodes().UpdateStatus(ctx, created,
		metav1.UpdateOptions{}))(c.tb)
	// Admission adds the taint of a node that is not ready.
	ready.Spec.Taints = n.Spec.Taints
	workloadtest.Must(c.CoreV1().Nodes().Update(ctx, ready, metav1.UpdateOptions{}))(c.tb)
}

func schedulerInZone(zone string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = zone }
}

// pod creates a pod that requests an amount of CPU. Set may change it.
func (c schedulerCluster) pod(name, cpu string, set ...func(*corev1.Pod)) *corev1.Pod {
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
	workloadtest.Until(c.tb, func(ctx context.Context) string {
		var err error
		created, err = c.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "service account") {
			return err.Error()
		}
		workloadtest.OK(c.tb, err)
		return ""
	})
	return created
}

func schedulerLabelled(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[key] = value }
}

func schedulerAffinity(a corev1.Affinity) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Affinity = &a }
}

// terms returns the terms that select the pods with a label.
func schedulerTerms(key, value, topologyKey string) []corev1.PodAffinityTerm {
	return []corev1.PodAffinityTerm{{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}},
		TopologyKey:   topologyKey,
	}}
}

// await waits until a pod is as wanted.
func (c schedulerCluster) await(name, what string, wanted func(*corev1.Pod) bool) *corev1.Pod {
	c.tb.Helper()
	return workloadtest.Await(c.tb, "pod "+name+" "+what,
		func(ctx context.Context) (*corev1.Pod, error) {
			return c.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		}, wanted)
}

// on waits until a pod is on a node, and returns the name of the node.
func (c schedulerCluster) on(name string) string {
	c.tb.Helper()
	return c.await(name, "on a node", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }).
		Spec.NodeName
}

// refused waits until a pod is said to be unschedulable with a message.
func (c schedulerCluster) refused(name, message string) {
	c.tb.Helper()
	c.await(name, "refused with: "+message, func(p *corev1.Pod) bool {
		condition := podCondition(p, corev1.PodScheduled)
		return condition.Status == corev1.ConditionFalse && condition.Message == message &&
			condition.Reason == corev1.PodReasonUnschedulable && p.Spec.NodeName == ""
	})
}

// event waits until there is an event about a pod with a note.
func (c schedulerCluster) event(name, reason, note string) {
	c.tb.Helper()
	workloadtest.Until(c.tb, func(ctx context.Context) string {
		list, err := c.EventsV1().Events("default").List(ctx, metav1.ListOptions{})
		workloadtest.OK(c.tb, err)
		var found []string
		for _, e := range list.Items {
			found = append(found, fmt.Sprint(e.Regarding.Name, e.Reason, e.Note))
			if e.Regarding.Name == name && e.Reason == reason && e.Note == note &&
				e.ReportingController == "default-scheduler" {
				return ""
			}
		}
		return fmt.Sprintf("no event %s %s %q: %q", name, reason, note, found)
	})
}

func (c schedulerCluster) delete(name string) {
	c.tb.Helper()
	workloadtest.OK(c.tb, c.CoreV1().Pods("default").Delete(c.tb.Context(), name,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
}

func (c schedulerCluster) patchNode(name, patch string) {
	c.tb.Helper()
	workloadtest.Must(c.CoreV1().Nodes().Patch(c.tb.Context(), name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}))(c.tb)
}

const schedulerUnhelpful = " preemption: 0/%d nodes are available: " +
	"%d Preemption is not helpful for scheduling."

func TestSchedule(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t, scheduler.Name)
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
		return podCondition(p, corev1.PodScheduled).Status == corev1.ConditionTrue
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
		"preemption: 0/4 nodes are available: 1 No preemption victims "+
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
		"preemption: 0/4 nodes are available: 1 No preemption victims "+
		"found for incoming pod, 3 Preemption is not helpful for scheduling.")
	c.delete("first")
	if got := c.on("third"); got != "small" {
		t.Errorf("the third pod is on %q", got)
	}

	gated := c.await("gated", "gated", func(p *corev1.Pod) bool { return p.Spec.NodeName == "" })
	if got := podCondition(gated, corev1.PodScheduled); got.Reason != "SchedulingGated" {
		t.Errorf("the gated pod has the condition %+v", got)
	}
	if _, err := c.CoreV1().Pods("default").Patch(t.Context(), "gated", types.MergePatchType,
		[]byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.on("gated")
	c.await("other", "left alone", func(p *corev1.Pod) bool {
		return p.Spec.NodeName == "" && podCondition(p, corev1.PodScheduled).Status == ""
	})
}

func TestSchedulerPlaces(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t, scheduler.Name)
	c.node("a1", "4", schedulerInZone("a"))
	c.node("a2", "4", schedulerInZone("a"))
	c.node("b1", "4", schedulerInZone("b"))
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
		"requested pod ports. preemption: 0/3 nodes are available: "+
		"3 No preemption victims found for incoming pod.")

	// affinity by node name, as of pods of DaemonSets
	byName := func(name string) func(*corev1.Pod) {
		return schedulerAffinity(corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
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
		"plugin(s) [NodeAffinity]."+fmt.Sprintf(schedulerUnhelpful, 3, 3))

	// pods that want to be together; the first may go anywhere
	near := schedulerAffinity(corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: schedulerTerms("group", "near", host),
	}})
	first := ""
	for i := range 4 {
		name := fmt.Sprint("near-", i)
		c.pod(name, "10m", schedulerLabelled("group", "near"), near)
		if first == "" {
			first = c.on(name)
		} else if got := c.on(name); got != first {
			t.Errorf("%s is on %s, the first on %s", name, got, first)
		}
	}
	c.pod("alone", "10m", schedulerAffinity(corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: schedulerTerms("group", "nobody", host),
	}}))
	c.refused("alone", "0/3 nodes are available: 3 node(s) didn't match pod affinity rules."+
		fmt.Sprintf(schedulerUnhelpful, 3, 3))
	c.pod("somebody", "10m", schedulerLabelled("group", "nobody"))
	if alone, somebody := c.on("alone"), c.on("somebody"); alone != somebody {
		t.Errorf("the pods are on %s and %s", alone, somebody)
	}

	// pods that want to be apart, and the other way around
	far := schedulerAffinity(corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: schedulerTerms("group", "far", zone),
	}})
	c.pod("far-0", "10m", schedulerLabelled("group", "far"), far)
	c.pod("far-1", "10m", schedulerLabelled("group", "far"), far)
	if one, other := c.on("far-0"), c.on("far-1"); one[0] == other[0] {
		t.Errorf("the pods that want to be apart are on %s and %s", one, other)
	}
	c.pod("far-2", "10m", schedulerLabelled("group", "far"))
	c.refused("far-2", "0/3 nodes are available: 3 node(s) didn't satisfy existing pods "+
		"anti-affinity rules. preemption: 0/3 nodes are available: "+
		"3 No preemption victims found for incoming pod.")
	c.pod("far-3", "10m", far)
	c.refused("far-3", "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules. "+
		"preemption: 0/3 nodes are available: 3 No preemption victims "+
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
		"constraints. preemption: 0/3 nodes are available: 3 No "+
		"preemption victims found for incoming pod.")

	// preferences
	c.pod("preferring", "10m", schedulerAffinity(corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
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

// TestSchedulerRecreated deletes pods while they are scheduled, and creates others with the same
// names.
func TestSchedulerRecreated(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t, scheduler.Name)
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

// schedulerRun runs a scheduler alone, on informers of client-go, until stop is called. Set may
// change its limits.
func schedulerRun(
	tb testing.TB, client kubernetes.Interface, set ...func(*scheduler.Limits),
) (stop func()) {
	tb.Helper()
	d, _ := workloadtest.Dependencies(client)
	limits := scheduler.Defaults()
	for _, set := range set {
		set(&limits)
	}
	return workloadtest.Start(tb, d, scheduler.Loop(limits))
}

// TestSchedulerRestart stops a scheduler in the middle and starts another one. What the first one
// is binding when it is stopped does not give a node more pods than it has room for.
func TestSchedulerRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, schedulerRestart) // in which no binding takes longer than it may
}

func schedulerRestart(t *testing.T) {
	c := schedulerRunning(t, servertest.InBubble)
	const nodes, pods = 5, 60
	for i := range nodes {
		c.node(fmt.Sprint("node-", i), "10")
	}
	for i := range pods {
		c.pod(fmt.Sprint("pod-", i), "1")
	}
	bound := func() map[string]int {
		t.Helper()
		list := workloadtest.Must(c.CoreV1().Pods("default").List(t.Context(),
			metav1.ListOptions{}))(t)
		counts := map[string]int{}
		for _, p := range list.Items {
			counts[p.Spec.NodeName]++
		}
		return counts
	}
	runUntil := func(done func(on map[string]int) bool) {
		t.Helper()
		defer schedulerRun(t, c)()
		workloadtest.Await(t, "pods on nodes",
			func(context.Context) (map[string]int, error) { return bound(), nil }, done)
	}
	runUntil(func(on map[string]int) bool { return on[""] < pods })
	runUntil(func(on map[string]int) bool { return on[""] == pods-10*nodes })
	for node, n := range bound() {
		if n != 10 {
			t.Errorf("%q has %d pods of %d", node, n, 10)
		}
	}
}

// TestSchedulerPatience has a pod that is tried again although nothing has happened that helps it.
func TestSchedulerPatience(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t)
	defer schedulerRun(t, c, func(l *scheduler.Limits) { l.Patience = 100 * time.Millisecond })()
	refused := func(nodes int) {
		t.Helper()
		c.refused("pod", fmt.Sprintf("0/%d nodes are available: %d node(s) didn't match Pod's node "+
			"affinity/selector."+schedulerUnhelpful, nodes, nodes, nodes, nodes))
	}
	c.node("first", "1")
	c.pod("pod", "1", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} })
	refused(1)
	c.node("second", "1")
	refused(2)
}
