package pods

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ForDeletion orders pods so that those come first that are best deleted: pods that are not
// assigned, not running or not ready, then those that cost less by annotation, then those that have
// more related pods on the same node, then the younger ones.
func ForDeletion(pods, related []*corev1.Pod, now time.Time) []*corev1.Pod {
	perNode := map[string]int{}
	for _, pod := range related {
		if Active(pod) {
			perNode[pod.Spec.NodeName]++
		}
	}
	ranked := slices.Clone(pods)
	slices.SortStableFunc(ranked, func(a, b *corev1.Pod) int {
		return cmp.Or(
			first(a.Spec.NodeName == "", b.Spec.NodeName == ""),
			cmp.Compare(phase(a), phase(b)),
			first(!Ready(a), !Ready(b)),
			cmp.Compare(cost(a), cost(b)),
			cmp.Compare(perNode[b.Spec.NodeName], perNode[a.Spec.NodeName]),
			younger(readySince(a), readySince(b), a, b, now),
			cmp.Compare(restarts(b), restarts(a)),
			younger(a.CreationTimestamp.Time, b.CreationTimestamp.Time, a, b, now),
		)
	})
	return ranked
}

// Weakest orders pods as the controller of Jobs deletes them: those first that are not assigned,
// not running or not ready, then those that became ready later, restarted more often, or are
// younger.
func Weakest(pods []*corev1.Pod) []*corev1.Pod {
	ranked := slices.Clone(pods)
	slices.SortStableFunc(ranked, func(a, b *corev1.Pod) int {
		return cmp.Or(
			first(a.Spec.NodeName == "", b.Spec.NodeName == ""),
			cmp.Compare(phase(a), phase(b)),
			first(!Ready(a), !Ready(b)),
			readySince(b).Compare(readySince(a)),
			cmp.Compare(restarts(b), restarts(a)),
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
		)
	})
	return ranked
}

// first orders what holds before what does not hold.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func phase(pod *corev1.Pod) int {
	switch pod.Status.Phase {
	case corev1.PodUnknown:
		return 1
	case corev1.PodRunning:
		return 2
	}
	return 0
}

// cost returns the cost of deleting a pod, as its annotation says.
func cost(pod *corev1.Pod) int32 {
	n, err := strconv.ParseInt(pod.Annotations[corev1.PodDeletionCost], 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

func readySince(pod *corev1.Pod) time.Time {
	if c := Condition(&pod.Status, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// younger orders the younger before the older. Ages of the same order of magnitude are equal and
// the uid decides, so that scaling down does not always hit the pods that were created last.
func younger(x, y time.Time, a, b *corev1.Pod, now time.Time) int {
	if x.Equal(y) {
		return 0
	}
	if x.IsZero() || y.IsZero() {
		return first(x.IsZero(), y.IsZero())
	}
	return cmp.Or(cmp.Compare(magnitude(now.Sub(x)), magnitude(now.Sub(y))),
		strings.Compare(string(a.UID), string(b.UID)))
}

func magnitude(age time.Duration) int64 {
	if age <= 0 {
		return -1
	}
	return int64(math.Floor(math.Log2(float64(age))))
}
