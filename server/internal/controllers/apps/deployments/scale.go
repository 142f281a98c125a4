package deployments

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// limits returns how many pods there may be more, and how many may be unavailable.
func limits(d *appsv1.Deployment) (surge, unavailable int32) {
	rolling := d.Spec.Strategy.RollingUpdate
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || rolling == nil {
		return 0, 0
	}
	// Validation has made sure that both can be resolved.
	resolve := func(value *intstr.IntOrString, roundUp bool) int32 {
		n, err := intstr.GetScaledValueFromIntOrPercent(
			intstr.ValueOrDefault(value, intstr.FromInt32(0)), int(*d.Spec.Replicas), roundUp)
		if err != nil {
			return 0
		}
		if n < 0 || n > math.MaxInt32 { // a percentage above 100, so large that it overflows
			return math.MaxInt32
		}
		return int32(n)
	}
	surge, unavailable = resolve(rolling.MaxSurge, true), resolve(rolling.MaxUnavailable, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1 // percentages of few replicas; with 0 nothing would move
	}
	return surge, min(unavailable, *d.Spec.Replicas)
}

func active(sets []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	return slices.DeleteFunc(slices.Clone(sets), func(rs *appsv1.ReplicaSet) bool {
		return *rs.Spec.Replicas == 0
	})
}

// replicas returns how many pods the sets are to have.
func replicas(sets []*appsv1.ReplicaSet) int64 {
	var n int64
	for _, rs := range sets {
		n += int64(*rs.Spec.Replicas)
	}
	return n
}

// atMost returns how many pods the Deployment may have, those of the surge included.
func atMost(d *appsv1.Deployment) int64 {
	surge, _ := limits(d)
	return int64(*d.Spec.Replicas) + int64(surge)
}

// scale changes the size of a set, and notes how many replicas the Deployment has.
func (o *rollout) scale(ctx context.Context, rs *appsv1.ReplicaSet, size int32) error {
	from := *rs.Spec.Replicas
	changed := rs.DeepCopy()
	if !annotateReplicas(o.d, changed) && from == size {
		return nil
	}
	*changed.Spec.Replicas = size
	updated, err := o.Client.AppsV1().ReplicaSets(rs.Namespace).Update(ctx, changed,
		metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("scale ReplicaSet %s: %w", rs.Name, err)
	}
	if from != size {
		direction := "up"
		if size < from {
			direction = "down"
		}
		o.Recorder.Eventf(o.d, corev1.EventTypeNormal, "ScalingReplicaSet",
			"Scaled %s replica set %s from %d to %d", direction, rs.Name, from, size)
	}
	if o.current == rs {
		o.current = updated
	} else if i := slices.Index(o.old, rs); i >= 0 {
		o.old[i] = updated
	}
	return nil
}

// scaleAll brings the sets to the size of the Deployment without moving replicas from one to
// another, except that the old ones get none any more once the current one has all.
func (o *rollout) scaleAll(ctx context.Context) error {
	if only := o.only(); only != nil {
		return o.scale(ctx, only, *o.d.Spec.Replicas)
	}
	if o.saturated() {
		for _, rs := range active(o.old) {
			if err := o.scale(ctx, rs, 0); err != nil {
				return err
			}
		}
		return nil
	}
	if o.d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return nil
	}
	sets := active(o.all())
	for i, size := range proportional(o.d, sets) {
		if err := o.scale(ctx, sets[i], size); err != nil {
			return err
		}
	}
	return nil
}

// only returns the only set that may have replicas, or nil if there are several.
func (o *rollout) only() *appsv1.ReplicaSet {
	sets := active(o.all())
	switch {
	case len(sets) == 1:
		return sets[0]
	case len(sets) > 1:
		return nil
	case o.current != nil:
		return o.current
	case len(o.old) > 0:
		return o.old[len(o.old)-1]
	}
	return nil
}

// saturated reports whether the current set has all replicas.
func (o *rollout) saturated() bool {
	if o.current == nil {
		return false
	}
	desired, _ := annotated(o.current, desiredReplicas)
	want := *o.d.Spec.Replicas
	return *o.current.Spec.Replicas == want && desired == want &&
		o.current.Status.AvailableReplicas == want
}

// proportional returns the sizes of sets of a Deployment that was scaled during a rollout: each
// gets a share of the difference that corresponds to its size, and the largest one what is left. It
// reorders the sets.
func proportional(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) []int32 {
	var most int64
	if *d.Spec.Replicas > 0 {
		most = atMost(d)
	}
	add := most - replicas(sets)
	// The largest first. Of equal ones, the newest grows and the oldest shrinks first.
	slices.SortStableFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		age := a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
		if add > 0 {
			age = -age
		}
		return cmp.Or(cmp.Compare(*b.Spec.Replicas, *a.Spec.Replicas), age)
	})
	sizes := make([]int32, len(sets))
	var added int64
	for i, rs := range sets {
		sizes[i] = *rs.Spec.Replicas
		if add == 0 || add == added {
			continue
		}
		share := shareOf(d, rs)
		if add > 0 {
			share = min(share, add-added)
		} else {
			share = max(share, add-added)
		}
		sizes[i] = clamp(int64(sizes[i]) + share)
		added += share
	}
	if len(sizes) > 0 {
		sizes[0] = clamp(int64(sizes[0]) + add - added)
	}
	return sizes
}

// clamp returns the number of replicas that is next to n.
func clamp(n int64) int32 { return int32(max(0, min(n, math.MaxInt32))) }

// shareOf returns by how much a set is to grow in proportion.
func shareOf(d *appsv1.Deployment, rs *appsv1.ReplicaSet) int64 {
	size := int64(*rs.Spec.Replicas)
	if *d.Spec.Replicas == 0 {
		return -size
	}
	before, ok := annotated(rs, maxReplicas)
	if !ok || before == 0 {
		before = d.Status.Replicas
	}
	if before == 0 {
		return 0
	}
	after := float64(size) * float64(atMost(d)) / float64(before)
	return int64(math.Round(min(after, math.MaxInt32))) - size
}

func annotated(rs *appsv1.ReplicaSet, name string) (int32, bool) {
	n, err := strconv.ParseInt(rs.Annotations[name], 10, 32)
	return int32(n), err == nil
}
