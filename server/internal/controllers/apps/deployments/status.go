package deployments

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Reasons of the condition Progressing.
const (
	available = "NewReplicaSetAvailable"
	timedOut  = "ProgressDeadlineExceeded"
	paused    = "DeploymentPaused"
	resumed   = "DeploymentResumed"
	updated   = "ReplicaSetUpdated"
)

// deadline returns how long a rollout may be without progress, or 0 if there is no limit.
func deadline(d *appsv1.Deployment) time.Duration {
	if d.Spec.ProgressDeadlineSeconds == nil || *d.Spec.ProgressDeadlineSeconds == math.MaxInt32 {
		return 0
	}
	return time.Duration(*d.Spec.ProgressDeadlineSeconds) * time.Second
}

// status returns the status by the sets, apart from progress.
func (o *rollout) status() appsv1.DeploymentStatus {
	s := appsv1.DeploymentStatus{
		ObservedGeneration:  o.d.Generation,
		CollisionCount:      o.d.Status.CollisionCount,
		TerminatingReplicas: new(int32(0)),
		Conditions:          slices.Clone(o.d.Status.Conditions),
	}
	for _, rs := range o.all() {
		s.Replicas += rs.Status.Replicas
		s.ReadyReplicas += rs.Status.ReadyReplicas
		s.AvailableReplicas += rs.Status.AvailableReplicas
		if rs.Status.TerminatingReplicas == nil {
			s.TerminatingReplicas = nil
		} else if s.TerminatingReplicas != nil {
			*s.TerminatingReplicas += *rs.Status.TerminatingReplicas
		}
	}
	if !features.Enabled(features.DeploymentReplicaSetTerminatingReplicas) {
		s.TerminatingReplicas = nil
	}
	if o.current != nil {
		s.UpdatedReplicas = o.current.Status.Replicas
	}
	s.UnavailableReplicas = clamp(replicas(o.all()) - int64(s.AvailableReplicas))
	_, unavailable := limits(o.d)
	if s.AvailableReplicas >= *o.d.Spec.Replicas-unavailable {
		setCondition(&s, newCondition(appsv1.DeploymentAvailable, corev1.ConditionTrue,
			"MinimumReplicasAvailable", "Deployment has minimum availability."))
	} else {
		setCondition(&s, newCondition(appsv1.DeploymentAvailable, corev1.ConditionFalse,
			"MinimumReplicasUnavailable", "Deployment does not have minimum availability."))
	}
	return s
}

// complete reports whether all replicas are available and of the present template.
func (o *rollout) complete(s *appsv1.DeploymentStatus) bool {
	want := *o.d.Spec.Replicas
	return s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want &&
		s.ObservedGeneration >= o.d.Generation
}

// progressed reports whether a rollout has got further since the last status.
func progressed(before, s *appsv1.DeploymentStatus) bool {
	return s.UpdatedReplicas > before.UpdatedReplicas ||
		s.Replicas-s.UpdatedReplicas < before.Replicas-before.UpdatedReplicas ||
		s.ReadyReplicas > before.ReadyReplicas || s.AvailableReplicas > before.AvailableReplicas
}

// writeProgress writes the status with the progress of the rollout.
func (o *rollout) writeProgress(ctx context.Context) error {
	s := o.status()
	limit := deadline(o.d)
	if limit == 0 {
		removeCondition(&s, appsv1.DeploymentProgressing)
	}
	what := fmt.Sprintf("Deployment %q", o.d.Name)
	if o.current != nil {
		what = fmt.Sprintf("ReplicaSet %q", o.current.Name)
	}
	current := condition(&o.d.Status, appsv1.DeploymentProgressing)
	stuck := current != nil && current.Reason != timedOut && current.Reason != available &&
		loop.Ahead(current.LastUpdateTime.Time, time.Now()) // the time begins again
	done := s.Replicas == s.UpdatedReplicas && current != nil && current.Reason == available
	switch {
	case limit == 0 || done:
	case o.complete(&s):
		setCondition(&s, newCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, available,
			what+" has successfully progressed."))
	case progressed(&o.d.Status, &s), stuck:
		c := newCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, updated,
			what+" is progressing.")
		if current != nil && current.Status == corev1.ConditionTrue {
			c.LastTransitionTime = current.LastTransitionTime
		}
		// Not only set: the time of the update counts.
		removeCondition(&s, appsv1.DeploymentProgressing)
		s.Conditions = append(s.Conditions, c)
	case current != nil && (current.Reason == timedOut ||
		time.Since(current.LastUpdateTime.Time) >= limit && current.Reason != available):
		setCondition(&s, newCondition(appsv1.DeploymentProgressing, corev1.ConditionFalse, timedOut,
			what+" has timed out progressing."))
	}
	removeCondition(&s, appsv1.DeploymentReplicaFailure)
	if failure := o.failure(); failure != nil {
		before := condition(&o.d.Status, appsv1.DeploymentReplicaFailure)
		if before != nil && before.Status == failure.Status && before.Reason == failure.Reason {
			failure = before
		}
		s.Conditions = append(s.Conditions, *failure)
	}
	// Look again when the time is over.
	c := condition(&s, appsv1.DeploymentProgressing)
	if limit > 0 && c != nil && c.Reason != timedOut && c.Reason != available {
		o.again = max(time.Until(c.LastUpdateTime.Add(limit)), time.Millisecond)
	}
	return o.writeStatus(ctx, s)
}

// failure returns the condition that pods cannot be created, above all those of the current set.
func (o *rollout) failure() *appsv1.DeploymentCondition {
	sets := o.all()
	slices.Reverse(sets)
	for _, rs := range sets {
		for _, c := range rs.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure {
				return &appsv1.DeploymentCondition{
					Type: appsv1.DeploymentReplicaFailure, Status: c.Status, Reason: c.Reason,
					Message: c.Message, LastUpdateTime: metav1.Now(), LastTransitionTime: metav1.Now(),
				}
			}
		}
	}
	return nil
}

// notePause notes in the status that the Deployment is paused or goes on. While it is paused, the
// time for progress does not run.
func (o *rollout) notePause(ctx context.Context) error {
	if deadline(o.d) == 0 {
		return nil
	}
	c := condition(&o.d.Status, appsv1.DeploymentProgressing)
	if c != nil && c.Reason == timedOut {
		return nil
	}
	noted := c != nil && c.Reason == paused
	var next appsv1.DeploymentCondition
	switch {
	case o.d.Spec.Paused && !noted:
		next = newCondition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, paused,
			"Deployment is paused")
	case !o.d.Spec.Paused && noted:
		next = newCondition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, resumed,
			"Deployment is resumed")
	default:
		return nil
	}
	setCondition(&o.d.Status, next)
	written, err := o.Client.AppsV1().Deployments(o.d.Namespace).UpdateStatus(ctx, o.d,
		metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	o.d = written
	return nil
}

// writeStatus writes the status and the revision unless both are written already.
func (o *rollout) writeStatus(ctx context.Context, s appsv1.DeploymentStatus) error {
	obj, ok, err := o.deployments.GetIndexer().GetByKey(loop.Key(o.d))
	if err != nil || !ok {
		return err
	}
	if seen := obj.(*appsv1.Deployment); seen.ResourceVersion == o.d.ResourceVersion &&
		seen.Annotations[revisionAnnotation] == o.d.Annotations[revisionAnnotation] &&
		equality.Semantic.DeepEqual(seen.Status, s) {
		return nil
	}
	o.d.Status = s
	_, err = o.Client.AppsV1().Deployments(o.d.Namespace).UpdateStatus(ctx, o.d,
		metav1.UpdateOptions{})
	return err
}

func condition(
	s *appsv1.DeploymentStatus, which appsv1.DeploymentConditionType,
) *appsv1.DeploymentCondition {
	return loop.FindCondition(s.Conditions, which, func(c *appsv1.DeploymentCondition) (
		appsv1.DeploymentConditionType, corev1.ConditionStatus, *metav1.Time,
	) {
		return c.Type, c.Status, &c.LastTransitionTime
	})
}

func newCondition(
	which appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string,
) appsv1.DeploymentCondition {
	return appsv1.DeploymentCondition{
		Type: which, Status: status, Reason: reason, Message: message,
		LastUpdateTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}
}

// setCondition sets a condition unless it has the same status and reason already. The condition
// becomes the last one, as in kube-controller-manager.
func setCondition(s *appsv1.DeploymentStatus, c appsv1.DeploymentCondition) {
	if before := condition(s, c.Type); before != nil {
		if before.Status == c.Status && before.Reason == c.Reason {
			return
		}
		if before.Status == c.Status {
			c.LastTransitionTime = before.LastTransitionTime
		}
	}
	removeCondition(s, c.Type)
	s.Conditions = append(s.Conditions, c)
}

func removeCondition(s *appsv1.DeploymentStatus, which appsv1.DeploymentConditionType) {
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == which
	})
}
