package pods

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
)

// FromTemplate returns a pod of an owner. Its name is generated from the owner's.
func FromTemplate(owner ownerrefs.Owner, template *corev1.PodTemplateSpec) *corev1.Pod {
	template = template.DeepCopy()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    owner.GetName() + "-",
			Namespace:       owner.GetNamespace(),
			Labels:          template.Labels,
			Annotations:     template.Annotations,
			Finalizers:      template.Finalizers,
			OwnerReferences: []metav1.OwnerReference{owner.Reference()},
		},
		Spec: template.Spec,
	}
}

// Finished reports whether all containers of a pod have ended for good.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Active reports whether a pod runs or will run.
func Active(pod *corev1.Pod) bool { return !Finished(pod) && pod.DeletionTimestamp == nil }

// Terminating reports whether a pod is being deleted and may still run.
func Terminating(pod *corev1.Pod) bool { return !Finished(pod) && pod.DeletionTimestamp != nil }

func conditionFields(c *corev1.PodCondition) (
	corev1.PodConditionType, corev1.ConditionStatus, *metav1.Time,
) {
	return c.Type, c.Status, &c.LastTransitionTime
}

// Condition returns a condition of a pod, or nil.
func Condition(s *corev1.PodStatus, which corev1.PodConditionType) *corev1.PodCondition {
	return loop.FindCondition(s.Conditions, which, conditionFields)
}

// SetCondition sets a condition of a pod. Its transition time changes only with its status.
func SetCondition(s *corev1.PodStatus, c corev1.PodCondition) {
	loop.SetCondition(&s.Conditions, c, conditionFields)
}

// Ready reports whether a pod is ready.
func Ready(pod *corev1.Pod) bool {
	c := Condition(&pod.Status, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// Available reports whether a pod has been ready for a number of seconds. If it is ready but not
// yet available, wait is the time until then.
func Available(
	pod *corev1.Pod, minReadySeconds int32, now time.Time,
) (available bool, wait time.Duration) {
	ready := Condition(&pod.Status, corev1.PodReady)
	if ready == nil || ready.Status != corev1.ConditionTrue {
		return false, 0
	}
	if minReadySeconds == 0 {
		return true, 0
	}
	period := time.Duration(minReadySeconds) * time.Second
	wait = loop.Left(ready.LastTransitionTime.Time, period, now)
	return wait <= 0, max(wait, 0)
}

// restarts returns the most restarts of a container.
func restarts(pod *corev1.Pod) int32 {
	var most int32
	for _, c := range pod.Status.ContainerStatuses {
		most = max(most, c.RestartCount)
	}
	return most
}
