package statefulsets

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/server/internal/controllers/apps/podtemplates"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// pass is one look at a StatefulSet. It does what can be done now; events cause the next one.
type pass struct {
	*controller
	owner           ownerrefs.Owner
	set             *appsv1.StatefulSet
	current, update *appsv1.ControllerRevision
	old             *corev1.PodTemplateSpec // the template of current
	now             time.Time

	first    int // the lowest ordinal
	replicas int
	// slots has the pods that the set is to have and has, by ordinal without first, and present has
	// the keys of slots in order.
	slots     map[int]*corev1.Pod
	present   []int
	condemned []*corev1.Pod // the pods that are too many, those with high ordinals first
	claimed   []*corev1.Pod
	deleted   int // pods of the current revision that were deleted
	removed   int // requests to delete a pod

	mu   sync.Mutex
	wait time.Duration // until the next pass, if it is positive
}

func newPass(
	c *controller, owner ownerrefs.Owner, set *appsv1.StatefulSet,
	current, update *appsv1.ControllerRevision, claimed []*corev1.Pod,
) (*pass, error) {
	old, err := podtemplates.Template(current)
	if err != nil {
		return nil, err
	}
	p := &pass{
		controller: c, owner: owner, set: set, current: current, update: update, old: old,
		now: time.Now(), claimed: claimed, replicas: int(*set.Spec.Replicas),
		slots: map[int]*corev1.Pod{},
	}
	if set.Spec.Ordinals != nil {
		p.first = int(set.Spec.Ordinals.Start)
	}
	for _, pod := range claimed {
		n, _ := ordinal(set.Name, pod.Name)
		if n >= p.first && n < p.first+p.replicas {
			p.slots[n-p.first] = pod
		} else {
			p.condemned = append(p.condemned, pod)
		}
	}
	p.present = slices.Sorted(maps.Keys(p.slots))
	slices.SortFunc(p.condemned, func(a, b *corev1.Pod) int {
		x, _ := ordinal(set.Name, a.Name)
		y, _ := ordinal(set.Name, b.Name)
		return cmp.Compare(y, x)
	})
	return p, nil
}

// ending returns a pass of a set that is being deleted, for its status. Its revisions may be gone
// or somebody else's.
func ending(c *controller, set *appsv1.StatefulSet, claimed []*corev1.Pod) *pass {
	p := &pass{
		controller: c, set: set, claimed: claimed, now: time.Now(),
		current: &appsv1.ControllerRevision{}, update: &appsv1.ControllerRevision{},
	}
	p.current.Name, p.update.Name = set.Status.CurrentRevision, set.Status.UpdateRevision
	return p
}

func (p *pass) ordered() bool {
	return p.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
}

// healthy reports whether the pods after a pod need not wait for it.
func (p *pass) healthy(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
		return false
	}
	available, wait := pods.Available(pod, p.set.Spec.MinReadySeconds, p.now)
	p.lookAgain(wait)
	return available
}

// lookAgain makes sure that there is a next pass after some time, if it is positive.
func (p *pass) lookAgain(wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait > 0 && (p.wait == 0 || wait < p.wait) {
		p.wait = wait
	}
}

func (p *pass) proceed(ctx context.Context) error {
	unhealthy := p.firstUnhealthy()
	missing := p.missing()
	for _, slot := range p.present {
		if p.ordered() && len(missing) > 0 && missing[0] < slot {
			break
		}
		if done, err := p.fill(ctx, slot); err != nil || !done && p.ordered() {
			return err
		}
	}
	if _, err := pods.SlowStart(len(missing), func(i int) error {
		return p.create(ctx, missing[i])
	}); err != nil || p.ordered() && len(missing) > 0 {
		return err
	}
	for _, pod := range p.condemned {
		if p.removed >= burst {
			return nil // their end causes the next pass
		}
		if done, err := p.condemn(ctx, pod, unhealthy); !done || err != nil {
			return err
		}
	}
	if p.set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return nil
	}
	if !features.Enabled(features.MaxUnavailableStatefulSet) {
		return p.rollOne(ctx)
	}
	return p.roll(ctx)
}

// missing returns the slots that are to get a pod in this pass, the lowest ones without a pod.
func (p *pass) missing() []int {
	room := p.replicas - len(p.slots)
	if p.ordered() {
		room = min(room, 1)
	} else if room > 0 {
		var wait time.Duration
		room, wait = p.pods.Room(p.owner.GetUID(), len(p.claimed), room)
		p.lookAgain(wait)
	}
	missing := make([]int, 0, room)
	next := 0
	for _, slot := range append(slices.Clone(p.present), p.replicas) {
		for ; next < slot && len(missing) < room; next++ {
			missing = append(missing, next)
		}
		next = slot + 1
	}
	return missing
}

// firstUnhealthy returns the unhealthy pod with the lowest ordinal. It may be deleted although pods
// are deleted in order only while all others are healthy.
func (p *pass) firstUnhealthy() *corev1.Pod {
	for _, slot := range p.present {
		if pod := p.slots[slot]; !p.healthy(pod) {
			return pod
		}
	}
	for _, pod := range slices.Backward(p.condemned) {
		if !p.healthy(pod) {
			return pod
		}
	}
	return nil
}

// fill brings the pod in a slot to its state. Done is false if those after it have to wait.
func (p *pass) fill(ctx context.Context, slot int) (done bool, err error) {
	pod := p.slots[slot]
	switch {
	case pod.DeletionTimestamp != nil:
		return false, nil
	case pod.Status.Phase == corev1.PodFailed:
		p.Recorder.Eventf(p.set, corev1.EventTypeWarning, "RecreatingFailedPod",
			"StatefulSet %s/%s is recreating failed Pod %s", p.set.Namespace, p.set.Name, pod.Name)
		return false, p.delete(ctx, pod)
	case pod.Status.Phase == corev1.PodSucceeded:
		p.Recorder.Eventf(p.set, corev1.EventTypeNormal, "RecreatingTerminatedPod",
			"StatefulSet %s/%s is recreating terminated Pod %s", p.set.Namespace, p.set.Name, pod.Name)
		return false, p.delete(ctx, pod)
	}
	if err := p.amend(ctx, slot); err != nil {
		return false, err
	}
	return p.healthy(pod), nil
}

// create makes the pod of a slot, after its claims.
func (p *pass) create(ctx context.Context, slot int) error {
	pod := p.podFor(slot)
	if held, err := p.provideClaims(ctx, pod, slot); err != nil || held {
		return p.failedCreate(pod, err)
	}
	_, err := p.pods.Post(ctx, p.owner, pod)
	if apierrors.IsAlreadyExists(err) {
		existing, getErr := p.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if getErr != nil {
			return getErr
		}
		if metav1.IsControlledBy(existing, p.set) {
			return nil // the informer is behind
		}
	}
	if err == nil {
		p.Recorder.Eventf(p.set, corev1.EventTypeNormal, pods.SuccessfulCreate,
			"Create Pod %s in StatefulSet %s successful", pod.Name, p.set.Name)
	}
	return p.failedCreate(pod, err)
}

// failedCreate reports the error of creating a pod, if there is one.
func (p *pass) failedCreate(pod *corev1.Pod, err error) error {
	if err != nil && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		p.Recorder.Eventf(p.set, corev1.EventTypeWarning, pods.FailedCreate,
			"Create Pod %s in StatefulSet %s failed error: %s", pod.Name, p.set.Name, err)
	}
	return err
}

func (p *pass) delete(ctx context.Context, pod *corev1.Pod) error {
	found, err := p.pods.Remove(ctx, p.owner, pod)
	p.removed++
	switch {
	case err != nil:
		p.Recorder.Eventf(p.set, corev1.EventTypeWarning, pods.FailedDelete,
			"Delete Pod %s in StatefulSet %s failed error: %s", pod.Name, p.set.Name, err)
	case found:
		p.Recorder.Eventf(p.set, corev1.EventTypeNormal, pods.SuccessfulDelete,
			"Delete Pod %s in StatefulSet %s successful", pod.Name, p.set.Name)
	}
	return err
}

// condemn deletes a pod that is one too many. Done is false if those before it have to wait.
func (p *pass) condemn(
	ctx context.Context, pod, unhealthy *corev1.Pod,
) (done bool, err error) {
	if pod.DeletionTimestamp != nil {
		return !p.ordered(), nil
	}
	if p.ordered() && !p.healthy(pod) && pod != unhealthy {
		return false, nil
	}
	if err := p.amendClaims(ctx, pod, true); err != nil {
		return false, err
	}
	if err := p.delete(ctx, pod); err != nil {
		return false, err
	}
	p.countDeleted(pod)
	return !p.ordered(), nil
}

func (p *pass) countDeleted(pod *corev1.Pod) {
	if revisionOf(pod) == p.current.Name {
		p.deleted++
	}
}

// partition returns the first slot that is updated.
func (p *pass) partition() int {
	rolling := p.set.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil || rolling.Partition == nil {
		return 0
	}
	return int(*rolling.Partition)
}

// mostUnavailable returns how many pods may be unavailable because of an update. A percentage is
// rounded down, as in kube-controller-manager.
func (p *pass) mostUnavailable() (int, error) {
	rolling := p.set.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil {
		return 1, nil
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(
		intstr.ValueOrDefault(rolling.MaxUnavailable, intstr.FromInt32(1)), p.replicas, false)
	return max(1, n), err
}

// roll replaces pods of other revisions, from the highest ordinal down, while no more than
// maxUnavailable are unavailable. If the pods are managed in parallel, those of other revisions
// that are unavailable anyway are replaced first, however many there are.
func (p *pass) roll(ctx context.Context) error {
	most, err := p.mostUnavailable()
	if err != nil {
		return err
	}
	healthy := map[int]bool{}
	for slot, pod := range p.slots {
		if p.healthy(pod) {
			healthy[slot] = true
		}
	}
	most -= p.replicas - len(healthy)
	outdated := func(slot int) bool {
		pod := p.slots[slot]
		return slot >= p.partition() && revisionOf(pod) != p.update.Name && pod.DeletionTimestamp == nil
	}
	if !p.ordered() {
		for _, slot := range slices.Backward(p.present) {
			if !outdated(slot) || healthy[slot] {
				continue
			}
			if err := p.replace(ctx, slot); err != nil || p.removed >= burst {
				return err
			}
		}
	}
	for _, slot := range slices.Backward(p.present) {
		if most <= 0 || p.removed >= burst {
			return nil
		}
		if !outdated(slot) || !healthy[slot] {
			continue
		}
		if err := p.replace(ctx, slot); err != nil {
			return err
		}
		most--
	}
	return nil
}

// rollOne replaces the pod of another revision with the highest ordinal, as soon as those after it
// are healthy.
func (p *pass) rollOne(ctx context.Context) error {
	if slot, ok := p.outdated(); ok {
		return p.replace(ctx, slot)
	}
	return nil
}

func (p *pass) outdated() (slot int, ok bool) {
	for slot := p.replicas - 1; slot >= p.partition(); slot-- {
		switch pod := p.slots[slot]; {
		case pod == nil:
			return 0, false // it was just created
		case revisionOf(pod) != p.update.Name && pod.DeletionTimestamp == nil:
			return slot, true
		case !p.healthy(pod):
			return 0, false
		}
	}
	return 0, false
}

// replace deletes a pod of another revision.
func (p *pass) replace(ctx context.Context, slot int) error {
	if err := p.delete(ctx, p.slots[slot]); err != nil {
		return err
	}
	p.countDeleted(p.slots[slot])
	return nil
}

// status counts the pods as the informer knows them.
func (p *pass) status(collisions *int32) appsv1.StatefulSetStatus {
	s := appsv1.StatefulSetStatus{
		ObservedGeneration: p.set.Generation,
		CurrentRevision:    p.current.Name,
		UpdateRevision:     p.update.Name,
		CollisionCount:     collisions,
		Conditions:         p.set.Status.Conditions,
	}
	for _, pod := range p.claimed {
		s.Replicas++
		if pod.Status.Phase == corev1.PodRunning && pods.Ready(pod) {
			s.ReadyReplicas++
			available, wait := pods.Available(pod, p.set.Spec.MinReadySeconds, p.now)
			if available {
				s.AvailableReplicas++
			}
			p.lookAgain(wait)
		}
		if pod.DeletionTimestamp != nil {
			continue
		}
		if revisionOf(pod) == p.current.Name {
			s.CurrentReplicas++
		}
		if revisionOf(pod) == p.update.Name {
			s.UpdatedReplicas++
		}
	}
	s.CurrentReplicas = max(0, s.CurrentReplicas-int32(p.deleted))
	if p.set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType &&
		s.UpdatedReplicas == s.Replicas && s.ReadyReplicas == s.Replicas &&
		s.Replicas == ptr.Deref(p.set.Spec.Replicas, 1) {
		s.CurrentReplicas, s.CurrentRevision = s.UpdatedReplicas, s.UpdateRevision
	}
	return s
}

// podFor returns the pod of a slot.
func (p *pass) podFor(slot int) *corev1.Pod {
	template, revision := &p.set.Spec.Template, p.update.Name
	if p.set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType &&
		slot < p.partition() {
		template, revision = p.old, p.current.Name
	}
	pod := pods.FromTemplate(p.owner, template)
	pod.Name = fmt.Sprintf("%s-%d", p.set.Name, p.first+slot)
	p.identify(pod, slot)
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = revision
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, p.set.Spec.ServiceName
	p.mount(pod, slot)
	return pod
}

// identify gives a pod the labels of its identity. It returns whether it had others.
func (p *pass) identify(pod *corev1.Pod, slot int) bool {
	index := fmt.Sprint(p.first + slot)
	if pod.Labels[appsv1.StatefulSetPodNameLabel] == pod.Name &&
		pod.Labels[appsv1.PodIndexLabel] == index {
		return false
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	pod.Labels[appsv1.PodIndexLabel] = index
	return true
}

// amend gives a pod that was adopted, or whose claims are missing, what it lacks.
func (p *pass) amend(ctx context.Context, slot int) error {
	pod := p.slots[slot]
	if pod.Status.Phase == corev1.PodPending {
		if _, err := p.provideClaims(ctx, pod, slot); err != nil {
			return err
		}
	}
	if err := p.amendClaims(ctx, pod, false); err != nil {
		return err
	}
	changed := pod.DeepCopy()
	if !p.identify(changed, slot) {
		return nil
	}
	_, err := p.Client.CoreV1().Pods(pod.Namespace).Update(ctx, changed, metav1.UpdateOptions{})
	return ownerrefs.IgnoreLag(err)
}
