package jobs

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestClockSetBack has a pod that failed hours from now, and a Job that began then.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	now, later := time.Now(), metav1.NewTime(time.Now().Add(3*time.Hour).Truncate(time.Second))
	pod := &corev1.Pod{Status: corev1.PodStatus{
		Phase: corev1.PodFailed,
		ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: later},
		}}},
	}}
	b := backoff{}.with([]*corev1.Pod{pod}, now)
	if got := b.remaining(now); got != firstBackoff {
		t.Errorf("the next pod is created after %s, want %s", got, firstBackoff)
	}
	if got := b.remaining(now.Add(firstBackoff)); got != 0 {
		t.Errorf("the next pod is created after %s more", got)
	}
	// Of an index, only the pod is known.
	if got := (backoff{1, endOf(pod)}).remaining(now); got != 0 {
		t.Errorf("the next pod of the index is created after %s", got)
	}
	k := &known{}
	k.begun(later.Time, now)
	if got := now.Add(time.Minute).Sub(k.begun(later.Time, now.Add(time.Minute))); got != time.Minute {
		t.Errorf("after a minute, the Job has been active for %s", got)
	}
}
