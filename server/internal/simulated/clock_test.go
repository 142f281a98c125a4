package simulated

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A node keeps to the times of its pods when the clock of the machine is set back by hours, also if
// it has not seen them begin.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	before := time.Date(2026, 7, 1, 12, 0, 0, 5e8, time.UTC)
	deletion := metav1.NewTime(before.Add(30 * time.Second))
	const far = -5 * time.Hour
	for name, test := range map[string]struct {
		says    metav1.Time // a time in the pod
		deleted bool
		seen    time.Duration // when it was seen first, from before on
		want    time.Duration // the time that counts, from before on
	}{
		"container":           {says: metav1.NewTime(before)},
		"container, set back": {says: metav1.NewTime(before), seen: far, want: far},
		"deletion":            {says: deletion, deleted: true},
		"deletion, seen late": {says: deletion, deleted: true, seen: time.Minute, want: time.Second},
		"deletion, set back":  {says: deletion, deleted: true, seen: far, want: far},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &moment{now: before.Add(test.seen), pod: &corev1.Pod{}, clock: clock{}}
			at := func() time.Time {
				if test.deleted {
					m.pod.DeletionTimestamp = &test.says
					return m.deleted(30 * time.Second)
				}
				return m.began("c", test.says.Time)
			}
			for range 2 { // it stays the same as time passes
				if got := at().Sub(before); got != test.want {
					t.Errorf("it counts from %v, want %v", got, test.want)
				}
				m.now = m.now.Add(time.Second)
			}
		})
	}
}
