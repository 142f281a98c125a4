package pods

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod that has been ready since a time in the future is available: the clock has been set back.
func TestAvailable(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for since, want := range map[time.Duration]time.Duration{
		-time.Minute: 0, -10 * time.Second: 20 * time.Second, 3 * time.Hour: 0,
	} {
		p := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(now.Add(since)),
		}}}}
		available, wait := Available(p, 30, now)
		if available != (want == 0) || wait != want {
			t.Errorf("ready %s from now: available %v, wait %s, want %s", since, available, wait, want)
		}
	}
}
