package deployments

import (
	"math"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestExtremes has sums of replicas that overflow an int32.
func TestExtremes(t *testing.T) {
	t.Parallel()
	const most = math.MaxInt32
	deployment := func(surge intstr.IntOrString) *appsv1.Deployment {
		return &appsv1.Deployment{Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(most)),
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge},
			},
		}}
	}
	set := func(size int32) *appsv1.ReplicaSet {
		return &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Replicas: &size}}
	}
	for _, surge := range []intstr.IntOrString{
		intstr.FromInt32(0), intstr.FromInt32(most), intstr.FromString("25%"),
		intstr.FromString("2147483647%"), intstr.FromString("9223372036854775807%"),
	} {
		d := deployment(surge)
		if got := (&rollout{d: d}).room(0); got != most {
			t.Errorf("with the surge %s, the first set gets %d replicas, want all", &surge, got)
		}
		if got := (&rollout{d: d, old: []*appsv1.ReplicaSet{set(most), set(most)}}).room(0); surge !=
			intstr.FromInt32(0) && got < 0 || surge == intstr.FromInt32(0) && got != 0 {
			t.Errorf("with the surge %s and old sets, the new one gets %d replicas", &surge, got)
		}
		sizes := proportional(d, []*appsv1.ReplicaSet{set(most), set(most)})
		if slices.Min(sizes) < 0 || slices.Max(sizes) == 0 {
			t.Errorf("with the surge %s, the sizes in proportion are %d", &surge, sizes)
		}
		if rs := set(1); !annotateReplicas(d, rs) || rs.Annotations[maxReplicas] != "2147483647" {
			t.Errorf("with the surge %s, the annotations are %v", &surge, rs.Annotations)
		}
	}
}
