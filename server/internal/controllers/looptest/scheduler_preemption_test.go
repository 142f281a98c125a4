package looptest

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/controllers/nodes/scheduler"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

func (c schedulerCluster) priority(name string, value int32, policy corev1.PreemptionPolicy) {
	c.tb.Helper()
	if _, err := c.SchedulingV1().PriorityClasses().Create(c.tb.Context(),
		&schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, PreemptionPolicy: &policy,
		}, metav1.CreateOptions{}); err != nil {
		c.tb.Fatal(err)
	}
}

func schedulerOfClass(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.PriorityClassName = name }
}

func TestSchedulerPreemption(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t, scheduler.Name)
	c.priority("high", 1000, corev1.PreemptLowerPriority)
	c.priority("higher", 2000, corev1.PreemptLowerPriority)
	c.priority("patient", 1000, corev1.PreemptNever)
	selector := func(node string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
			p.Spec.TerminationGracePeriodSeconds = new(int64(30))
		}
	}
	// Both nodes are full. A budget protects the only pod of the first one, and the second one has
	// two pods, one of which is enough.
	c.node("protected", "2")
	c.node("other", "3")
	c.pod("kept", "2", selector("protected"), schedulerLabelled("app", "kept"))
	c.pod("large", "2", selector("other"))
	c.pod("small", "1", selector("other"))
	for _, name := range []string{"kept", "large", "small"} {
		c.on(name)
	}
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "budget"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "kept"}},
		},
	}
	if _, err := c.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), budget,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	c.pod("waits", "2", schedulerOfClass("patient"))
	c.refused("waits", "0/2 nodes are available: 2 Insufficient cpu. "+
		"preemption: not eligible due to preemptionPolicy=Never.")
	preemptor := c.pod("preemptor", "2", schedulerOfClass("high"), func(p *corev1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = new(int64(30))
	})
	c.await("preemptor", "nominated", func(p *corev1.Pod) bool {
		return p.Status.NominatedNodeName == "other" &&
			podCondition(p, corev1.PodScheduled).Message == "0/2 nodes are available: 2 Insufficient cpu. "+
				"preemption: found a potential placement for pod on node other, preempting 1 victims"
	})
	victim := c.await("large", "preempted", func(p *corev1.Pod) bool {
		return p.DeletionTimestamp != nil
	})
	if got := podCondition(victim, corev1.DisruptionTarget); got.Reason != "PreemptionByScheduler" ||
		got.Message != "default-scheduler: preempting to accommodate a higher priority pod" {
		t.Errorf("the victim has the condition %+v", got)
	}
	c.event("large", "Preempted", fmt.Sprintf("Preempted by pod %s on node other", preemptor.UID))

	// The room is not for others, unless their priority is higher.
	c.delete("large")
	if got := c.on("preemptor"); got != "other" {
		t.Errorf("the preemptor is on %s", got)
	}
	c.refused("waits", "0/2 nodes are available: 2 Insufficient cpu. "+
		"preemption: not eligible due to preemptionPolicy=Never.")
	for _, name := range []string{"kept", "small"} {
		p := c.await(name, "there", func(*corev1.Pod) bool { return true })
		if p.DeletionTimestamp != nil {
			t.Errorf("%s was preempted without need", name)
		}
	}

	// If there is no other way, a budget does not count.
	c.pod("highest", "3", schedulerOfClass("higher"))
	c.await("highest", "nominated", func(p *corev1.Pod) bool {
		return p.Status.NominatedNodeName == "other"
	})
	c.pod("second", "2", schedulerOfClass("higher"))
	c.await("second", "nominated", func(p *corev1.Pod) bool {
		return p.Status.NominatedNodeName == "protected"
	})
	for _, name := range []string{"kept", "small", "preemptor"} {
		c.await(name, "preempted", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
		c.delete(name)
	}
	if one, other := c.on("highest"), c.on("second"); one != "other" || other != "protected" {
		t.Errorf("the pods are on %s and %s", one, other)
	}
}

// TestSchedulerPreemptionFails lets the first request to delete a victim fail.
func TestSchedulerPreemptionFails(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t)
	c.priority("high", 1000, corev1.PreemptLowerPriority)
	c.node("node", "1")
	var refused atomic.Bool
	config := c.server.RESTConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return workloadtest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodDelete && refused.CompareAndSwap(false, true) {
				return nil, errors.New("the connection is broken")
			}
			return next.RoundTrip(r)
		})
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	defer schedulerRun(t, client)()
	c.pod("victim", "1")
	c.on("victim")
	c.pod("preemptor", "1", schedulerOfClass("high"))
	c.on("preemptor")
	if !refused.Load() {
		t.Error("nothing was refused")
	}
}

// TestSchedulerPreemptsLeaving has two pods that want the room of one that takes its time.
func TestSchedulerPreemptsLeaving(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t, scheduler.Name)
	c.priority("high", 1000, corev1.PreemptLowerPriority)
	c.priority("higher", 2000, corev1.PreemptLowerPriority)
	c.node("node", "1")
	c.pod("victim", "1", func(p *corev1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = new(int64(600))
	})
	c.on("victim")
	const message = "0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential " +
		"placement for pod on node node, preempting 1 victims"
	c.pod("first", "1", schedulerOfClass("high"))
	c.refused("first", message)
	c.pod("second", "1", schedulerOfClass("higher"))
	c.refused("second", message)
	// There was nobody else to preempt, so that the first one need not look elsewhere.
	first := c.await("first", "there", func(*corev1.Pod) bool { return true })
	if first.Status.NominatedNodeName != "node" ||
		podCondition(first, corev1.PodScheduled).Message != message {
		t.Errorf("the first pod has the status %+v", first.Status)
	}
	c.delete("victim")
	c.on("second")
}

// TestSchedulerPriority lets pods of two priorities wait for the same room.
func TestSchedulerPriority(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t, scheduler.Name)
	c.priority("high", 1000, corev1.PreemptNever)
	for i := range 5 {
		c.pod(fmt.Sprint("low-", i), "1")
	}
	c.pod("high", "1", schedulerOfClass("high"))
	c.refused("high", "no nodes available to schedule pods")
	c.node("node", "1", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	c.refused("high", "0/1 nodes are available: 1 node(s) were unschedulable."+
		" preemption: not eligible due to preemptionPolicy=Never.")
	for i := range 5 {
		c.refused(fmt.Sprint("low-", i), "0/1 nodes are available: 1 node(s) were unschedulable."+
			fmt.Sprintf(schedulerUnhelpful, 1, 1))
	}
	if _, err := c.CoreV1().Nodes().Patch(t.Context(), "node", types.MergePatchType,
		[]byte(`{"spec":{"unschedulable":false}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.on("high")
}

// TestSchedulerPreemptionElsewhere has pods that others make no room for on their nominated nodes:
// a pod there terminates for another reason, or the node is cordoned after a pod was evicted from
// it.
func TestSchedulerPreemptionElsewhere(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t, scheduler.Name)
	c.priority("middle", 1000, corev1.PreemptLowerPriority)
	c.priority("high", 2000, corev1.PreemptLowerPriority)
	patch := func(name, patch string, subresources ...string) {
		t.Helper()
		if _, err := c.CoreV1().Pods("default").Patch(t.Context(), name, types.StrategicMergePatchType,
			[]byte(patch), metav1.PatchOptions{}, subresources...); err != nil {
			t.Fatal(err)
		}
	}
	on := func(nodes ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.TerminationGracePeriodSeconds = new(int64(3600))
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{
						MatchExpressions: []corev1.NodeSelectorRequirement{{
							Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: nodes,
						}},
					}},
				},
			}}
		}
	}
	// The pods on the nominated nodes are more important, so the other nodes are chosen.
	for _, name := range []string{"deleted", "preempted"} {
		c.node(name, "1")
		c.node(name+"-other", "1")
		c.pod(name, "1", on(name), schedulerOfClass("middle"))
		c.pod(name+"-other", "1", on(name+"-other"))
		c.on(name)
		c.on(name + "-other")
	}
	patch("preempted", `{"status":{"conditions":[{"type":"DisruptionTarget","status":"True",
		"reason":"PreemptionByScheduler"}]}}`, "status")
	c.patchNode("preempted", `{"spec":{"unschedulable":true}}`)
	for _, name := range []string{"deleted", "preempted"} {
		if err := c.CoreV1().Pods("default").Delete(t.Context(), name,
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		preemptor := name + "-preemptor"
		c.pod(preemptor, "1", on(name, name+"-other"), schedulerOfClass("high"), func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/gate"}}
		})
		patch(preemptor, `{"status":{"nominatedNodeName":"`+name+`"}}`, "status")
		patch(preemptor, `{"spec":{"schedulingGates":null}}`)
		c.await(preemptor, "nominated elsewhere", func(p *corev1.Pod) bool {
			return p.Status.NominatedNodeName == name+"-other"
		})
		c.await(name+"-other", "preempted", func(p *corev1.Pod) bool {
			return p.DeletionTimestamp != nil
		})
	}
}
