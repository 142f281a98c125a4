package scheduling

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
)

func TestPriorityClasses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		name   string
		value  int32
		policy corev1.PreemptionPolicy
		want   string
	}{
		"highest":        {"x", MaxPriority, corev1.PreemptNever, ""},
		"too high":       {"x", MaxPriority + 1, corev1.PreemptNever, "value FieldValueForbidden"},
		"the system's":   {"system-cluster-critical", 2 * MaxPriority, corev1.PreemptLowerPriority, ""},
		"not the same":   {"system-cluster-critical", 1, corev1.PreemptLowerPriority, "metadata.name FieldValueForbidden"},
		"unknown policy": {"x", 1, "Ask", "preemptionPolicy FieldValueNotSupported"},
		"empty policy":   {"x", 1, "", "preemptionPolicy FieldValueRequired"},
	} {
		class := &schedulingv1.PriorityClass{Value: c.value, PreemptionPolicy: &c.policy}
		class.Name = c.name
		got := ""
		for _, err := range validatePriorityClass(t.Context(), class) {
			got += err.Field + " " + string(err.Type)
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
