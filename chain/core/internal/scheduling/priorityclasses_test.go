package scheduling

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func TestPriorityClasses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		name   string
		value  int32
		policy corev1.PreemptionPolicy
		want   string
	}{
		"highest":      {"x", MaxPriority, corev1.PreemptNever, ""},
		"too high":     {"x", MaxPriority + 1, corev1.PreemptNever, "value Forbidden"},
		"the system's": {"system-cluster-critical", 2 * MaxPriority, corev1.PreemptLowerPriority, ""},
		"not the same": {
			"system-cluster-critical", 1, corev1.PreemptLowerPriority, "metadata.name Forbidden",
		},
		"unknown policy": {"x", 1, "Ask", "preemptionPolicy NotSupported"},
		"empty policy":   {"x", 1, "", "preemptionPolicy Required"},
	} {
		class := &schedulingv1.PriorityClass{Value: c.value, PreemptionPolicy: &c.policy}
		class.Name = c.name
		got := strings.Join(kindtest.Causes(validatePriorityClass(t.Context(), class)), ", ")
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
