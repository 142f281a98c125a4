package pods

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestForDeletion(t *testing.T) {
	t.Parallel()
	now := time.Now()
	pod := func(name, node string, phase corev1.PodPhase, ready time.Duration) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		p.CreationTimestamp = metav1.NewTime(now.Add(-100 * time.Hour))
		p.Spec.NodeName, p.Status.Phase = node, phase
		if ready > 0 {
			p.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodReady, Status: corev1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(now.Add(-ready)),
			}}
		}
		return p
	}
	unassigned := pod("unassigned", "", corev1.PodPending, 0)
	expectations := pod("expectations", "a", corev1.PodPending, 0)
	unready := pod("unready", "a", corev1.PodRunning, 0)
	cheap := pod("cheap", "a", corev1.PodRunning, 8*time.Hour)
	cheap.Annotations = map[string]string{corev1.PodDeletionCost: "-1"}
	crowded := pod("crowded", "b", corev1.PodRunning, 8*time.Hour)
	young := pod("young", "c", corev1.PodRunning, time.Minute)
	restarted := pod("restarted", "c", corev1.PodRunning, 8*time.Hour)
	restarted.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 3}}
	old := pod("old", "c", corev1.PodRunning, 8*time.Hour)
	old.Status.Conditions[0].LastTransitionTime = restarted.Status.Conditions[0].LastTransitionTime
	want := []*corev1.Pod{unassigned, expectations, unready, cheap, crowded, young, restarted, old}
	// Node b has four related pods, and node c three.
	related := slices.Concat(want, []*corev1.Pod{crowded, crowded, crowded})
	shuffled := slices.Clone(want)
	slices.Reverse(shuffled)
	for i, got := range ForDeletion(shuffled, related, now) {
		if got != want[i] {
			t.Errorf("number %d is %s, want %s", i, got.Name, want[i].Name)
		}
	}
}

func TestWeakest(t *testing.T) {
	t.Parallel()
	now := time.Now()
	pod := func(name, node string, phase corev1.PodPhase, ready, age time.Duration) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		p.CreationTimestamp = metav1.NewTime(now.Add(-age))
		p.Spec.NodeName, p.Status.Phase = node, phase
		if ready > 0 {
			p.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodReady, Status: corev1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(now.Add(-ready)),
			}}
		}
		return p
	}
	cheap := pod("cheap", "a", corev1.PodRunning, 4*time.Hour, 9*time.Hour)
	cheap.Annotations = map[string]string{corev1.PodDeletionCost: "-1"} // only for replica sets
	restarted := pod("restarted", "a", corev1.PodRunning, 2*time.Hour, 9*time.Hour)
	restarted.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 3}}
	want := []*corev1.Pod{
		pod("unassigned", "", corev1.PodPending, 0, 9*time.Hour),
		pod("expectations", "a", corev1.PodPending, 0, 9*time.Hour),
		pod("unready", "a", corev1.PodRunning, 0, 9*time.Hour),
		restarted,
		pod("young", "a", corev1.PodRunning, 2*time.Hour, 3*time.Hour),
		pod("old", "a", corev1.PodRunning, 2*time.Hour, 9*time.Hour),
		cheap,
	}
	shuffled := slices.Clone(want)
	slices.Reverse(shuffled)
	for i, got := range Weakest(shuffled) {
		if got != want[i] {
			t.Errorf("number %d is %s, want %s", i, got.Name, want[i].Name)
		}
	}
}

func TestExpectations(t *testing.T) {
	t.Parallel()
	p := expectations{owners: map[types.UID]writes{}}
	p.created("owner", "a")
	p.deleted("owner", "b")
	p.seen("owner", "b", false) // an update from before the deletion
	p.seen("owner", "a", false)
	if p.satisfied("owner") {
		t.Error("the deletion of b was not seen")
	}
	if p.seen("owner", "b", true); !p.satisfied("owner") || len(p.owners) > 0 {
		t.Errorf("not satisfied: %v", p.owners)
	}
	p.created("owner", "lost")
	p.owners["owner"]["lost"] = write{at: time.Now().Add(-time.Hour)}
	if !p.satisfied("owner") {
		t.Error("waits forever for a pod that never comes")
	}
}
