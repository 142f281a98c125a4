package namespaces

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A namespace waits for the grace periods of its objects, but not for hours if the clock has been
// set back since they were deleted.
func TestUntilGraceEnds(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for deleted, want := range map[time.Duration]time.Duration{
		0:                 31 * time.Second,
		-10 * time.Second: 21 * time.Second,
		-time.Minute:      -29 * time.Second,
		5 * time.Hour:     0,
	} {
		end := metav1.NewTime(now.Add(deleted + 30*time.Second))
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			DeletionTimestamp: &end, DeletionGracePeriodSeconds: new(int64(30)),
		}}
		if got := untilGraceEnds(o, now); got != want {
			t.Errorf("deleted %v from now: %v remain, want %v", deleted, got, want)
		}
	}
}
