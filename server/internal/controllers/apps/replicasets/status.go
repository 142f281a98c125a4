package replicasets

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// statusFrom counts the pods of a set. Wait is the time until the next pod becomes available.
func statusFrom(
	rs *appsv1.ReplicaSet, claimed []*corev1.Pod, now time.Time,
) (status appsv1.ReplicaSetStatus, wait time.Duration) {
	status = appsv1.ReplicaSetStatus{
		ObservedGeneration:  rs.Generation,
		TerminatingReplicas: new(int32(0)),
		Conditions:          slices.Clone(rs.Status.Conditions),
	}
	template := labels.SelectorFromSet(rs.Spec.Template.Labels)
	for _, pod := range claimed {
		if pods.Terminating(pod) {
			*status.TerminatingReplicas++
		}
		if !pods.Active(pod) {
			continue
		}
		status.Replicas++
		if template.Matches(labels.Set(pod.Labels)) {
			status.FullyLabeledReplicas++
		}
		if !pods.Ready(pod) {
			continue
		}
		status.ReadyReplicas++
		available, later := pods.Available(pod, rs.Spec.MinReadySeconds, now)
		if available {
			status.AvailableReplicas++
		} else if wait == 0 || later < wait {
			wait = later
		}
	}
	return status, wait
}

// setFailure sets or, if failure is nil, removes the condition that pods cannot be created or
// deleted.
func setFailure(status *appsv1.ReplicaSetStatus, failure *appsv1.ReplicaSetCondition) {
	i := slices.IndexFunc(status.Conditions, func(c appsv1.ReplicaSetCondition) bool {
		return c.Type == appsv1.ReplicaSetReplicaFailure
	})
	switch {
	case failure == nil && i >= 0:
		status.Conditions = slices.Delete(status.Conditions, i, i+1)
	case failure != nil && i >= 0 && status.Conditions[i].Reason == failure.Reason:
	case failure != nil:
		failure.LastTransitionTime = metav1.Now()
		if i >= 0 {
			status.Conditions[i] = *failure
		} else {
			status.Conditions = append(status.Conditions, *failure)
		}
	}
}
