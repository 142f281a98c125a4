package daemonsets

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kinproc/kinproc/server/internal/controllers/apps/podtemplates"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// pass is one look at a DaemonSet. It does what can be done now; events cause the next one.
type pass struct {
	*controller
	owner      ownerrefs.Owner
	set        *appsv1.DaemonSet
	hash       string
	collisions *int32
	now        time.Time
	places     []*place
	lost       []*corev1.Pod // pods for nodes that do not exist, and which run nowhere
	wait       time.Duration // until the next pass, if it is positive
}

// place is a node with the pods of the set that are on it or meant for it: first those on it, and
// of these the oldest first.
type place struct {
	*corev1.Node
	fit
	pods []*corev1.Pod
}

// fit says whether a node is to have a pod, and whether one that is there may stay.
type fit struct{ runs, stays bool }

func (c *controller) look(
	ctx context.Context, owner ownerrefs.Owner, set *appsv1.DaemonSet, state podtemplates.State,
	claimed []*corev1.Pod,
) (*pass, error) {
	p := &pass{
		controller: c, owner: owner, set: set, hash: hashOf(state.Latest),
		collisions: state.Collisions, now: time.Now(),
	}
	fits := fitting(ctx, set)
	byName := map[string]*place{}
	for _, obj := range c.nodes.GetStore().List() {
		node := obj.(*corev1.Node)
		fit, err := fits(node)
		if err != nil {
			return nil, err
		}
		byName[node.Name] = &place{Node: node, fit: fit}
		p.places = append(p.places, byName[node.Name])
	}
	slices.SortFunc(p.places, func(a, b *place) int { return cmp.Compare(a.Name, b.Name) })
	for _, pod := range claimed {
		if pod.DeletionTimestamp != nil && pods.Finished(pod) {
			continue // does not keep another one from running
		}
		name := target(pod)
		if at := byName[name]; at != nil {
			at.pods = append(at.pods, pod)
		} else if name != "" && pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
			p.lost = append(p.lost, pod)
		}
	}
	for _, at := range p.places {
		slices.SortFunc(at.pods, func(a, b *corev1.Pod) int {
			// NodeName is that of the place, or empty.
			return cmp.Or(cmp.Compare(b.Spec.NodeName, a.Spec.NodeName),
				a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
	}
	return p, nil
}

// limits returns how many pods may be there in addition, and how many may be unavailable.
func (p *pass) limits() (surge, unavailable int, err error) {
	rolling := p.set.Spec.UpdateStrategy.RollingUpdate
	if p.set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType || rolling == nil {
		return 0, 0, nil
	}
	var desired int
	for _, at := range p.places {
		if at.runs {
			desired++
		}
	}
	zero := intstr.FromInt32(0)
	surge, err = intstr.GetScaledValueFromIntOrPercent(
		intstr.ValueOrDefault(rolling.MaxSurge, zero), desired, true)
	if err != nil {
		return 0, 0, err
	}
	unavailable, err = intstr.GetScaledValueFromIntOrPercent(
		intstr.ValueOrDefault(rolling.MaxUnavailable, zero), desired, true)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, unavailable, err
}

func (p *pass) available(pod *corev1.Pod) bool {
	available, wait := pods.Available(pod, p.set.Spec.MinReadySeconds, p.now)
	p.lookAgain(wait)
	return available
}

// lookAgain makes sure that there is a next pass after some time, if it is positive.
func (p *pass) lookAgain(wait time.Duration) {
	if wait > 0 && (p.wait == 0 || wait < p.wait) {
		p.wait = wait
	}
}

// manage creates the pods that are missing and deletes those that are too many. It returns whether
// there were any.
func (p *pass) manage(ctx context.Context) (bool, error) {
	surge, _, err := p.limits()
	if err != nil {
		return false, err
	}
	var missing []string
	surplus := p.lost
	for _, at := range p.places {
		switch {
		case at.runs && len(at.pods) == 0:
			missing = append(missing, at.Name)
		case at.stays:
			surplus = append(surplus, p.surplus(at, surge > 0)...)
		default:
			for _, pod := range at.pods {
				if pod.DeletionTimestamp == nil {
					surplus = append(surplus, pod)
				}
			}
		}
	}
	return len(missing)+len(surplus) > 0, p.apply(ctx, missing, surplus)
}

// apply creates pods for some nodes and deletes others. It deletes even if it cannot create,
// because the new pods may be refused until the others have freed their quota.
func (p *pass) apply(ctx context.Context, missing []string, surplus []*corev1.Pod) error {
	_, err := p.pods.Create(ctx, p.owner, min(len(missing), burst), func(i int) *corev1.Pod {
		return p.podFor(missing[i])
	})
	return errors.Join(err, p.pods.Delete(ctx, p.owner, surplus[:min(len(surplus), burst)]))
}

// surplus returns the pods that must leave a node although one has to be there: those that have
// ended, and all but the oldest. During a rollout with a surge there may be two, until the new one
// is available.
func (p *pass) surplus(at *place, surge bool) []*corev1.Pod {
	var gone []*corev1.Pod
	var old, current *corev1.Pod
	for _, pod := range at.pods {
		switch {
		case pod.DeletionTimestamp != nil:
		case pods.Finished(pod):
			if p.report(at, pod) {
				gone = append(gone, pod)
			}
		case surge && hashOf(pod) == p.hash && current == nil:
			current = pod
		case old == nil && !(surge && hashOf(pod) == p.hash):
			old = pod
		default:
			gone = append(gone, pod)
		}
	}
	if old != nil && current != nil && (!pods.Ready(old) || p.available(current)) {
		gone = append(gone, old)
	}
	return gone
}

// report reports that a pod has ended. It returns whether the pod may be deleted now, for which one
// that has failed has to wait longer each time.
func (p *pass) report(at *place, pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodSucceeded {
		p.Recorder.Eventf(p.set, corev1.EventTypeNormal, "SucceededDaemonPod",
			"Found succeeded daemon pod %s/%s on node %s, will try to delete it", pod.Namespace, pod.Name,
			at.Name)
		return true
	}
	key := string(p.set.UID) + "/" + at.Name
	if p.failures.IsInBackOffSinceUpdate(key, p.now) {
		p.lookAgain(p.failures.Get(key))
		return false
	}
	p.failures.GC()
	p.failures.Next(key, p.now)
	p.Recorder.Eventf(p.set, corev1.EventTypeWarning, "FailedDaemonPod",
		"Found failed daemon pod %s/%s on node %s, will try to kill it", pod.Namespace, pod.Name, at.Name)
	return true
}

// roll replaces pods of old templates.
func (p *pass) roll(ctx context.Context) error {
	if p.set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return nil
	}
	surge, unavailable, err := p.limits()
	if err != nil {
		return err
	}
	if surge > 0 {
		return p.rollWithSurge(ctx, surge)
	}
	// Pods that are not available are replaced at once. As for the others, so many may go that
	// there are not too few.
	var replaced, candidates []*corev1.Pod
	down := 0
	for _, at := range p.places {
		if !at.runs && len(at.pods) == 0 {
			continue
		}
		old, current := p.split(at)
		switch {
		case old == nil && current == nil, old != nil && current != nil:
			down++
		case current != nil:
			if !p.available(current) {
				down++
			}
		case !p.available(old):
			replaced = append(replaced, old)
			down++
		default:
			candidates = append(candidates, old)
		}
	}
	spare := max(0, min(unavailable-down, len(candidates)))
	return p.apply(ctx, nil, append(replaced, candidates[:spare]...))
}

func (p *pass) rollWithSurge(ctx context.Context, surge int) error {
	var needed, candidates []string
	var gone []*corev1.Pod
	extra := 0
	for _, at := range p.places {
		old, current := p.split(at)
		switch {
		case old == nil || !at.runs:
		case current == nil && !p.available(old):
			needed = append(needed, at.Name)
		case current == nil:
			candidates = append(candidates, at.Name)
		case p.available(current):
			gone = append(gone, old)
		default:
			extra++
		}
	}
	spare := max(0, min(surge-extra-len(needed), len(candidates)))
	return p.apply(ctx, append(needed, candidates[:spare]...), gone)
}

// split returns the pod of an old template and the one of the present template on a node, without
// those that are being deleted.
func (p *pass) split(at *place) (old, current *corev1.Pod) {
	for _, pod := range at.pods {
		switch {
		case pod.DeletionTimestamp != nil:
		case hashOf(pod) == p.hash && current == nil:
			current = pod
		case hashOf(pod) != p.hash && old == nil:
			old = pod
		}
	}
	return old, current
}

func (p *pass) status() appsv1.DaemonSetStatus {
	s := appsv1.DaemonSetStatus{
		ObservedGeneration: p.set.Generation,
		CollisionCount:     p.collisions,
		Conditions:         p.set.Status.Conditions,
	}
	for _, at := range p.places {
		switch {
		case !at.runs && len(at.pods) > 0:
			s.NumberMisscheduled++
			continue
		case !at.runs:
			continue
		}
		s.DesiredNumberScheduled++
		if len(at.pods) == 0 {
			continue
		}
		s.CurrentNumberScheduled++
		if pods.Ready(at.pods[0]) {
			s.NumberReady++
			if p.available(at.pods[0]) {
				s.NumberAvailable++
			}
		}
		if hashOf(at.pods[0]) == p.hash {
			s.UpdatedNumberScheduled++
		}
	}
	s.NumberUnavailable = s.DesiredNumberScheduled - s.NumberAvailable
	return s
}
