package legacy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod gets the grace period that the client asked for or its own, although the registry looked at
// an earlier version of the pod first, without a node.
func TestGracePeriodAfterEarlierVersion(t *testing.T) {
	t.Parallel()
	early := &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(30))}}
	bound := early.DeepCopy()
	bound.Spec.NodeName = "n"
	for _, test := range []struct {
		asked *int64
		want  int64
	}{{nil, 30}, {new(int64(5)), 5}, {new(int64(0)), 0}} {
		options := &metav1.DeleteOptions{GracePeriodSeconds: test.asked}
		ctx := asking(t.Context(), options)
		podGracePeriod(ctx, early, options)
		if got := *options.GracePeriodSeconds; got != 0 {
			t.Errorf("without a node: %d s", got)
		}
		podGracePeriod(ctx, bound, options)
		if got := *options.GracePeriodSeconds; got != test.want {
			t.Errorf("with a node: %d s, want %d", got, test.want)
		}
	}
}
