package deployments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kinproc/kinproc/server/internal/controllers/apps/podtemplates"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// rollout is one look at a Deployment.
type rollout struct {
	*controller
	d *appsv1.Deployment // a copy; its status and its revision change until it is written
	// old are the ReplicaSets of old templates, the oldest first. Current is that of the present
	// template, and nil if there is none.
	old     []*appsv1.ReplicaSet
	current *appsv1.ReplicaSet
	again   time.Duration // if positive, when to look again
}

func newRollout(c *controller, seen *appsv1.Deployment, sets []*appsv1.ReplicaSet) *rollout {
	o := &rollout{controller: c, d: seen.DeepCopy()}
	// Others may have made the same set, and then the oldest counts.
	slices.SortFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, rs := range sets {
		if o.current == nil && sameTemplate(&rs.Spec.Template, &seen.Spec.Template) {
			o.current = rs
		} else {
			o.old = append(o.old, rs)
		}
	}
	return o
}

// all returns all ReplicaSets.
func (o *rollout) all() []*appsv1.ReplicaSet {
	if o.current == nil {
		return o.old
	}
	return append(slices.Clone(o.old), o.current)
}

func (o *rollout) proceed(ctx context.Context) error {
	if o.d.DeletionTimestamp != nil {
		return o.writeStatus(ctx, o.status())
	}
	if err := o.notePause(ctx); err != nil {
		return err
	}
	if o.d.Spec.Paused || o.scaled() {
		return o.scaleOnly(ctx)
	}
	if o.d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return o.recreate(ctx)
	}
	return o.roll(ctx)
}

// scaled reports whether the number of replicas has changed since the sets were scaled.
func (o *rollout) scaled() bool {
	for _, rs := range active(o.all()) {
		if desired, ok := annotated(rs, desiredReplicas); ok && desired != *o.d.Spec.Replicas {
			return true
		}
	}
	return false
}

func (o *rollout) scaleOnly(ctx context.Context) error {
	if err := o.updateCurrent(ctx); err != nil {
		return err
	}
	if err := o.scaleAll(ctx); err != nil {
		return err
	}
	if o.d.Spec.Paused {
		if err := o.cleanUp(ctx); err != nil {
			return err
		}
	}
	return o.writeStatus(ctx, o.status())
}

func (o *rollout) recreate(ctx context.Context) error {
	if err := o.updateCurrent(ctx); err != nil {
		return err
	}
	var scaled bool
	for _, rs := range active(o.old) {
		scaled = true
		if err := o.scale(ctx, rs, 0); err != nil {
			return err
		}
	}
	if scaled || o.oldPodsLeft() {
		return o.writeProgress(ctx)
	}
	if o.current == nil {
		if err := o.create(ctx); err != nil {
			return err
		}
	}
	if err := o.scale(ctx, o.current, *o.d.Spec.Replicas); err != nil {
		return err
	}
	return o.finish(ctx)
}

// oldPodsLeft reports whether pods of old sets may still run, even if they are being deleted, or
// are still counted: the status never shows old pods beside new ones.
func (o *rollout) oldPodsLeft() bool {
	for _, rs := range o.old {
		if rs.Status.Replicas > 0 {
			return true
		}
		// The index has these pods.
		owned, _ := ownerrefs.Owned[*corev1.Pod](o.pods.GetIndexer(), rs.UID)
		if slices.ContainsFunc(owned, func(p *corev1.Pod) bool { return !pods.Finished(p) }) {
			return true
		}
	}
	return false
}

func (o *rollout) roll(ctx context.Context) error {
	if o.current == nil {
		if err := o.create(ctx); err != nil {
			return err
		}
	} else if err := o.updateCurrent(ctx); err != nil {
		return err
	}
	want := *o.d.Spec.Replicas
	if have := *o.current.Spec.Replicas; have < want {
		want = have + o.room(have)
	}
	if want != *o.current.Spec.Replicas {
		if err := o.scale(ctx, o.current, want); err != nil {
			return err
		}
		return o.writeProgress(ctx)
	}
	if scaled, err := o.scaleDownOld(ctx); err != nil || scaled {
		if err != nil {
			return err
		}
		return o.writeProgress(ctx)
	}
	return o.finish(ctx)
}

// room returns by how much the current set, which has some replicas, may grow.
func (o *rollout) room(have int32) int32 {
	if o.d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return *o.d.Spec.Replicas - have
	}
	return clamp(min(atMost(o.d)-replicas(o.all()), int64(*o.d.Spec.Replicas)-int64(have)))
}

// scaleDownOld takes from the old sets what the current one makes up for: first pods that are not
// available, and then as many as there are available ones to spare.
func (o *rollout) scaleDownOld(ctx context.Context) (bool, error) {
	all, old := o.all(), active(o.old)
	if len(old) == 0 {
		return false, nil
	}
	_, unavailable := limits(o.d)
	atLeast := int64(*o.d.Spec.Replicas) - int64(unavailable)
	spare := replicas(all) - atLeast -
		int64(*o.current.Spec.Replicas-o.current.Status.AvailableReplicas)
	if spare <= 0 {
		return false, nil
	}
	var available, taken int64
	for _, rs := range all {
		available += int64(rs.Status.AvailableReplicas)
	}
	sizes := make([]int64, len(old))
	for i, rs := range old {
		sizes[i] = int64(*rs.Spec.Replicas)
		n := max(0, min(spare-taken, sizes[i]-int64(rs.Status.AvailableReplicas)))
		sizes[i] -= n
		taken += n
	}
	// The status of a set may count pods that the set has just deleted.
	spare = min(spare-taken, available-atLeast)
	for i := range old {
		n := max(0, min(spare, sizes[i]))
		sizes[i] -= n
		spare -= n
	}
	var scaled bool
	for i, rs := range old {
		if sizes[i] == int64(*rs.Spec.Replicas) {
			continue
		}
		scaled = true
		if err := o.scale(ctx, rs, int32(sizes[i])); err != nil {
			return true, err
		}
	}
	return scaled, nil
}

func (o *rollout) finish(ctx context.Context) error {
	if status := o.status(); o.complete(&status) {
		if err := o.cleanUp(ctx); err != nil {
			return err
		}
	}
	return o.writeProgress(ctx)
}

// cleanUp deletes the oldest of the old sets beyond the limit.
func (o *rollout) cleanUp(ctx context.Context) error {
	limit := o.d.Spec.RevisionHistoryLimit
	if limit == nil || *limit == math.MaxInt32 {
		return nil
	}
	old := slices.DeleteFunc(slices.Clone(o.old), func(rs *appsv1.ReplicaSet) bool {
		return rs.DeletionTimestamp != nil
	})
	slices.SortStableFunc(old, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Compare(revision(a), revision(b))
	})
	for _, rs := range old[:max(0, len(old)-int(*limit))] {
		if rs.Status.Replicas != 0 || *rs.Spec.Replicas != 0 ||
			rs.Generation > rs.Status.ObservedGeneration {
			continue
		}
		err := o.Client.AppsV1().ReplicaSets(rs.Namespace).Delete(ctx, rs.Name, metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(rs.UID)),
		})
		if ownerrefs.IgnoreLag(err) != nil {
			return fmt.Errorf("delete old ReplicaSet %s: %w", rs.Name, err)
		}
	}
	return nil
}

// updateCurrent gives the current set what the Deployment has by now, and the Deployment the set's
// revision.
func (o *rollout) updateCurrent(ctx context.Context) error {
	if o.current == nil {
		return nil
	}
	rs := o.current.DeepCopy()
	changed := annotate(o.d, rs, o.nextRevision(), true)
	if rs.Spec.MinReadySeconds != o.d.Spec.MinReadySeconds {
		rs.Spec.MinReadySeconds, changed = o.d.Spec.MinReadySeconds, true
	}
	if changed {
		updated, err := o.Client.AppsV1().ReplicaSets(rs.Namespace).Update(ctx, rs,
			metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("update ReplicaSet %s: %w", rs.Name, err)
		}
		o.current = updated
	}
	setRevision(o.d, o.current.Annotations[revisionAnnotation])
	if deadline(o.d) > 0 && condition(&o.d.Status, appsv1.DeploymentProgressing) == nil {
		setCondition(&o.d.Status, newCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue,
			"FoundNewReplicaSet", fmt.Sprintf("Found new replica set %q", o.current.Name)))
	}
	return nil
}

func (o *rollout) nextRevision() int64 {
	var most int64
	for _, rs := range o.old {
		most = max(most, revision(rs))
	}
	return most + 1
}

// create makes the current set. Its name tells its template, so that it is not made twice.
func (o *rollout) create(ctx context.Context) error {
	template := o.d.Spec.Template.DeepCopy()
	hash := podtemplates.Hash(template, o.d.Status.CollisionCount)
	label := func(m map[string]string) map[string]string {
		labeled := maps.Clone(m)
		if labeled == nil {
			labeled = map[string]string{}
		}
		labeled[appsv1.DefaultDeploymentUniqueLabelKey] = hash
		return labeled
	}
	template.Labels = label(template.Labels)
	selector := o.d.Spec.Selector.DeepCopy()
	selector.MatchLabels = label(selector.MatchLabels)
	size := o.room(0)
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:            o.d.Name + "-" + hash,
			Namespace:       o.d.Namespace,
			Labels:          template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o.d, kind)},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: new(size), MinReadySeconds: o.d.Spec.MinReadySeconds,
			Selector: selector, Template: *template,
		},
	}
	annotate(o.d, rs, o.nextRevision(), false)
	annotateReplicas(o.d, rs)
	client := o.Client.AppsV1().ReplicaSets(o.d.Namespace)
	created, err := client.Create(ctx, rs, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		existing, getErr := client.Get(ctx, rs.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(getErr) { // no event need come of one that was somebody else's
			return fmt.Errorf("the name of the new ReplicaSet was taken: %w", err)
		}
		if getErr != nil {
			return getErr
		}
		// If it is or can become the Deployment's, the informer is behind.
		same := sameTemplate(&existing.Spec.Template, &o.d.Spec.Template)
		ref := metav1.GetControllerOfNoCopy(existing)
		if same && ref == nil && existing.DeletionTimestamp == nil &&
			selectorOf(o.d).Matches(labels.Set(existing.Labels)) {
			return apierrors.NewConflict(appsv1.Resource("replicasets"), rs.Name,
				errors.New("it has lost its owner and is not adopted yet"))
		}
		if same && ref != nil && ref.UID == o.d.UID {
			o.current = existing
			return o.updateCurrent(ctx)
		}
		if o.d.Status.CollisionCount == nil {
			o.d.Status.CollisionCount = new(int32(0))
		}
		*o.d.Status.CollisionCount++
		if _, updateErr := o.Client.AppsV1().Deployments(o.d.Namespace).UpdateStatus(ctx, o.d,
			metav1.UpdateOptions{}); updateErr != nil {
			return updateErr
		}
		return fmt.Errorf("the name of the new ReplicaSet is taken: %w", err)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return err
	case err != nil:
		return o.createFailed(ctx, rs.Name, err)
	}
	o.current = created
	if size > 0 {
		o.Recorder.Eventf(o.d, corev1.EventTypeNormal, "ScalingReplicaSet",
			"Scaled up replica set %s from 0 to %d", created.Name, size)
	}
	setRevision(o.d, created.Annotations[revisionAnnotation])
	if deadline(o.d) > 0 {
		setCondition(&o.d.Status, newCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue,
			"NewReplicaSetCreated", fmt.Sprintf("Created new replica set %q", created.Name)))
	}
	return nil
}

func (o *rollout) createFailed(ctx context.Context, name string, err error) error {
	message := fmt.Sprintf("Failed to create new replica set %q: %v", name, err)
	if deadline(o.d) > 0 {
		setCondition(&o.d.Status, newCondition(appsv1.DeploymentProgressing, corev1.ConditionFalse,
			"ReplicaSetCreateError", message))
		if _, updateErr := o.Client.AppsV1().Deployments(o.d.Namespace).UpdateStatus(ctx, o.d,
			metav1.UpdateOptions{}); ownerrefs.IgnoreLag(updateErr) != nil {
			return updateErr
		}
	}
	o.Recorder.Event(o.d, corev1.EventTypeWarning, "ReplicaSetCreateError", message)
	return fmt.Errorf("create ReplicaSet %s: %w", name, err)
}
