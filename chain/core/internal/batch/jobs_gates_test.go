package batch

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/featuregate"
)

func TestWhatASuspendedJobMayChange(t *testing.T) {
	t.Parallel()
	fresh, starting := batchv1.JobStatus{}, batchv1.JobStatus{Active: 1}
	started := batchv1.JobStatus{StartTime: &metav1.Time{}}
	stopped := started
	stopped.Conditions = []batchv1.JobCondition{
		{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue},
	}
	stopping := stopped
	stopping.Active = 1
	type answer struct{ directives, resources bool }
	for name, test := range map[string]struct {
		suspended bool
		status    batchv1.JobStatus
		on, off   answer
	}{
		"runs":                   {false, started, answer{}, answer{}},
		"never started":          {true, fresh, answer{true, true}, answer{true, false}},
		"starting":               {true, starting, answer{}, answer{true, false}},
		"not yet stopped":        {true, started, answer{}, answer{}},
		"stopped":                {true, stopped, answer{true, true}, answer{}},
		"stopped, but has a pod": {true, stopping, answer{}, answer{}},
	} {
		job := &batchv1.Job{Spec: batchv1.JobSpec{Suspend: &test.suspended}, Status: test.status}
		for on, want := range map[bool]answer{true: test.on, false: test.off} {
			var got answer
			gates := func(featuregate.Feature) bool { return on }
			got.directives, got.resources = mayChange(job, gates)
			if got != want {
				t.Errorf("%s, gates on: %t: got %v, want %v", name, on, got, want)
			}
		}
	}
}
