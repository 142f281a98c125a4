package ownerrefs

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestLostController has a pod that loses its controller while it is being deleted. Its former
// owner must not wait for it, and whoever frees orphans of finalizers must hear of it.
func TestLostController(t *testing.T) {
	t.Parallel()
	kind := appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	var gone []types.UID
	var orphans, changed int
	h := Handler[*corev1.Pod]{
		Kind: kind.GroupKind(),
		Changed: func(key string, old, pod *corev1.Pod) {
			if key == "n/set" && old != nil && pod == nil {
				changed++
			}
		},
		Orphan: func(*corev1.Pod) { orphans++ },
		Seen: func(owner types.UID, _ *corev1.Pod, is bool) {
			if is {
				gone = append(gone, owner)
			}
		},
	}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "set", UID: "u"}}
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: "p", ResourceVersion: "1", DeletionTimestamp: new(metav1.Now()),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, kind)},
	}}
	pod := old.DeepCopy()
	pod.ResourceVersion, pod.OwnerReferences = "2", nil
	h.OnUpdate(old, pod)
	if changed != 1 || orphans != 1 || len(gone) != 1 || gone[0] != "u" {
		t.Errorf("%d changes, %d orphans, gone from %v", changed, orphans, gone)
	}
}
