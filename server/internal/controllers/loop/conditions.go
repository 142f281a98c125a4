package loop

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionFields returns the type and the status of a condition, and where its transition time is.
// Kinds that are older than metav1.Condition each have a type C of their own.
type ConditionFields[C any, T ~string] func(*C) (T, corev1.ConditionStatus, *metav1.Time)

// NodeConditions are the fields of the conditions of nodes.
func NodeConditions(c *corev1.NodeCondition) (
	corev1.NodeConditionType, corev1.ConditionStatus, *metav1.Time,
) {
	return c.Type, c.Status, &c.LastTransitionTime
}

// FindCondition returns the condition of a type, or nil.
func FindCondition[C any, T ~string](list []C, which T, fields ConditionFields[C, T]) *C {
	for i := range list {
		if t, _, _ := fields(&list[i]); t == which {
			return &list[i]
		}
	}
	return nil
}

// SetCondition adds a condition, or replaces that of its type. The transition time changes only
// with the status.
func SetCondition[C any, T ~string](list *[]C, c C, fields ConditionFields[C, T]) {
	which, status, since := fields(&c)
	old := FindCondition(*list, which, fields)
	if old == nil {
		*list = append(*list, c)
		return
	}
	if _, before, at := fields(old); before == status {
		*since = *at
	}
	*old = c
}
