package statefulsets

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOutdated looks for the pod that is replaced next if there is no maxUnavailable.
func TestOutdated(t *testing.T) {
	t.Parallel()
	const none = -1
	for name, test := range map[string]struct {
		// pods has a letter for each ordinal: o for an outdated pod, O for one that is not healthy,
		// n for a new pod, N for one that is not healthy, d for an outdated one that is being
		// deleted, and - for none.
		pods      string
		partition int32
		want      int
	}{
		"the last one first":        {pods: "ooo", want: 2},
		"then the one before":       {pods: "oon", want: 1},
		"all are new":               {pods: "nnn", want: none},
		"waits for a new one":       {pods: "onN", want: none},
		"does not wait for it":      {pods: "Non", want: 1},
		"unhealthy does not matter": {pods: "oO", want: 1},
		"being deleted":             {pods: "od", want: none},
		"being created":             {pods: "o-", want: none},
		"partition":                 {pods: "oonn", partition: 2, want: none},
		"within the partition":      {pods: "oonn", partition: 1, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &pass{
				set: &appsv1.StatefulSet{}, update: &appsv1.ControllerRevision{}, now: time.Now(),
				replicas: len(test.pods), slots: map[int]*corev1.Pod{},
			}
			p.update.Name = "new"
			p.set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{
				Partition: &test.partition,
			}
			for slot, letter := range test.pods {
				if letter != '-' {
					p.slots[slot] = podOf(letter)
				}
			}
			got, ok := p.outdated()
			if !ok {
				got = none
			}
			if got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func podOf(letter rune) *corev1.Pod {
	p := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	revision, ready := "old", corev1.ConditionTrue
	switch letter {
	case 'n':
		revision = "new"
	case 'N':
		revision, ready = "new", corev1.ConditionFalse
	case 'O':
		ready = corev1.ConditionFalse
	case 'd':
		p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	}
	p.Labels = map[string]string{appsv1.StatefulSetRevisionLabel: revision}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	return p
}
