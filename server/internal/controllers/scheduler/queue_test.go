package scheduler

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// An event gives two pods a chance. The important one still has to pause, the other one need not.
// They hear of the event in random order.
func TestImportantPodsPauseForNobody(t *testing.T) {
	t.Parallel()
	for range 50 {
		q := newQueue(func(time.Duration, func()) *time.Timer { return time.NewTimer(time.Hour) })
		for name, priority := range map[types.UID]int32{"low": 0, "high": 1} {
			q.put(&pod{
				Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: name}}, priority: priority,
			}, nil)
		}
		for p := q.pop(); p != nil; p = q.pop() {
			q.failed(p, nodeChanged)
		}
		q.pods["low"].tried = time.Time{}
		q.pods["high"].attempts = 10
		q.happenedToAll(nodeChanged, nil)
		if p := q.pop(); p == nil || p.UID != "high" {
			t.Fatal("the important pod is not the first to be tried")
		}
	}
}
