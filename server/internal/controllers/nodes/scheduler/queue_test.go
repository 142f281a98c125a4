package scheduler

import (
	"slices"
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

// A pod does not wait for the pods of another namespace, unless these are more important.
func TestNamespacesTakeTurns(t *testing.T) {
	t.Parallel()
	q := newQueue(nil)
	put := func(namespace, name string, priority int32) {
		q.put(&pod{
			Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, UID: types.UID(namespace + name),
			}},
			priority: priority,
		}, nil)
	}
	for _, name := range []string{"1", "2", "3", "4"} {
		put("many", name, 0)
	}
	put("few", "1", 0)
	put("many", "important", 1)
	put("few", "2", 0)
	q.remove("many3")
	var order []string
	for p := q.pop(); p != nil; p = q.pop() {
		order = append(order, p.key())
		if len(order) == 3 {
			put("late", "1", 0)
		}
	}
	want := []string{"many/important", "few/1", "many/1", "late/1", "few/2", "many/2", "many/4"}
	if !slices.Equal(order, want) {
		t.Errorf("the order is %v, want %v", order, want)
	}
}
