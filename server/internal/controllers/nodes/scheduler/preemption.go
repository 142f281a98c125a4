package scheduler

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// preemption is the decision to evict pods from a node for a pod of a higher priority.
type preemption struct {
	node    *node
	victims []*placed
	// violations is how many of the victims have a disruption budget that does not allow it.
	violations int
}

// ineligible returns why no pods may be evicted for the pod, as a sentence, or nothing. Pods that
// were evicted for it make room on its nominated node, unless that does not help any more.
func (a *attempt) ineligible(f *failure) string {
	if a.Spec.PreemptionPolicy != nil && *a.Spec.PreemptionPolicy == corev1.PreemptNever {
		return "not eligible due to preemptionPolicy=Never."
	}
	n := a.cluster.nodes[a.Status.NominatedNodeName]
	if n == nil || !slices.Contains(f.open, n) {
		return ""
	}
	for _, p := range n.pods {
		if p.priority < a.priority && preempted(p.Pod) {
			return "not eligible due to a terminating pod on the nominated node."
		}
	}
	return ""
}

// preempted reports whether a pod is terminating because it was evicted for another one.
func preempted(p *corev1.Pod) bool {
	c := pods.Condition(&p.Status, corev1.DisruptionTarget)
	return p.DeletionTimestamp != nil && c != nil && c.Status == corev1.ConditionTrue &&
		c.Reason == corev1.PodReasonPreemptionByScheduler
}

// preempt chooses the node from which to evict pods, or returns the message why there is none.
func (a *attempt) preempt(
	f *failure, budgets []*policyv1.PodDisruptionBudget,
) (*preemption, string) {
	reasons := map[string]int{}
	if others := f.nodes - len(f.open); others > 0 {
		reasons["Preemption is not helpful for scheduling"] = others
	}
	// Not all nodes of a large cluster are tried.
	enough := max(len(f.open)/10, 100)
	var best *preemption
	found := 0
	for _, n := range f.open {
		p, v := a.preemptOn(n, budgets)
		if p == nil {
			reasons[v.reason]++
			for _, reason := range v.more {
				reasons[reason]++
			}
			continue
		}
		if best == nil || p.compare(best) < 0 {
			best = p
		}
		if found++; found == enough {
			break
		}
	}
	if best == nil {
		return nil, counted(f.nodes, reasons)
	}
	return best, ""
}

// detach takes a pod away from its node. Only the counts of its domains change: to prepare the
// attempt anew for each pod of a large cluster would take long, and nobody else is scheduled.
func (a *attempt) detach(p *placed) {
	a.cluster.detach(p)
	a.moved(p, -1)
}

// attach undoes detach.
func (a *attempt) attach(p *placed) {
	a.cluster.attach(p)
	a.moved(p, +1)
}

func (a *attempt) moved(p *placed, by int) {
	a.countRefusing(p, by)
	a.countSelected(p, by)
	a.spreadChanged(p, by)
}

// preemptOn returns which pods to evict from a node, or why that does not help. It takes pods away
// from the node and puts them back.
func (a *attempt) preemptOn(
	n *node, budgets []*policyv1.PodDisruptionBudget,
) (*preemption, verdict) {
	var lower []*placed
	for _, p := range n.pods {
		if p.priority < a.priority {
			lower = append(lower, p)
		}
	}
	if len(lower) == 0 {
		return nil, verdict{reason: "No preemption victims found for incoming pod"}
	}
	for _, p := range lower {
		a.detach(p)
	}
	away := lower
	defer func() {
		for _, p := range away {
			a.attach(p)
		}
	}()
	if v := a.filter(n); !v.ok() {
		return nil, v
	}
	slices.SortFunc(lower, moreImportant)
	violating, others := violations(lower, budgets)
	result := &preemption{node: n}
	for i, p := range slices.Concat(violating, others) {
		a.attach(p)
		if v := a.filter(n); v.ok() {
			continue // spared
		}
		a.detach(p)
		result.victims = append(result.victims, p)
		if i < len(violating) {
			result.violations++
		}
	}
	away = result.victims
	if len(away) == 0 { // another pod was nominated or has left meanwhile
		return nil, verdict{reason: "No preemption victims found for incoming pod"}
	}
	slices.SortFunc(result.victims, moreImportant)
	return result, verdict{}
}

// moreImportant orders pods by priority and then by age.
func moreImportant(p, q *placed) int {
	return cmp.Or(cmp.Compare(q.priority, p.priority), started(p).Compare(started(q)))
}

func started(p *placed) time.Time {
	if p.Status.StartTime == nil {
		return time.Now()
	}
	return p.Status.StartTime.Time
}

// violations separates the pods whose eviction a disruption budget does not allow. Pods count
// against their budget in the given order.
func violations(
	pods []*placed, budgets []*policyv1.PodDisruptionBudget,
) (violating, others []*placed) {
	left := make([]int32, len(budgets))
	for i, b := range budgets {
		left[i] = b.Status.DisruptionsAllowed
	}
	for _, p := range pods {
		violates := false
		for i, b := range budgets {
			if b.Namespace != p.Namespace || len(p.Labels) == 0 || b.Spec.Selector == nil ||
				!ownerrefs.Selects(b.Spec.Selector, p.Labels) {
				continue
			}
			if _, counted := b.Status.DisruptedPods[p.Name]; counted {
				continue
			}
			left[i]--
			violates = violates || left[i] < 0
		}
		if violates {
			violating = append(violating, p)
		} else {
			others = append(others, p)
		}
	}
	return violating, others
}

// compare returns a negative number if p does less harm than q.
func (p *preemption) compare(q *preemption) int {
	sum := func(victims []*placed) (sum int64) {
		for _, v := range victims {
			sum += int64(v.priority) - int64(-1<<31) // so that more pods never weigh less
		}
		return sum
	}
	return cmp.Or(
		cmp.Compare(p.violations, q.violations),
		cmp.Compare(p.victims[0].priority, q.victims[0].priority),
		cmp.Compare(sum(p.victims), sum(q.victims)),
		cmp.Compare(len(p.victims), len(q.victims)),
		earliest(q.victims).Compare(earliest(p.victims)),
	)
}

// earliest returns when the first of the most important victims started.
func earliest(victims []*placed) time.Time {
	first := started(victims[0])
	for _, v := range victims {
		if t := started(v); v.priority == victims[0].priority && t.Before(first) {
			first = t
		}
	}
	return first
}
