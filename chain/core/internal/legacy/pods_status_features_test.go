package legacy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-base/featuregate"

	"github.com/kinproc/kinproc/chain/features"
)

func TestStatusFieldsOfGates(t *testing.T) {
	t.Parallel()
	health := corev1.ResourceHealth{ResourceID: "a", Health: corev1.ResourceHealthStatusHealthy}
	container := func(health corev1.ResourceHealth) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			AllocatedResourcesStatus: []corev1.ResourceStatus{
				{Name: "a", Resources: []corev1.ResourceHealth{health}},
			},
		}}}
	}
	withMessage := health
	withMessage.Message = new("m")
	uses := map[featuregate.Feature]struct{ used, cleared corev1.PodStatus }{
		features.InPlacePodLevelResourcesVerticalScaling: {
			used: corev1.PodStatus{
				AllocatedResources: amounts("cpu", "1"), Resources: &corev1.ResourceRequirements{},
			},
		},
		features.DRAExtendedResource: {
			used: corev1.PodStatus{
				ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{
					ResourceClaimName: "a",
				},
			},
		},
		features.ResourceHealthStatus: {
			used:    container(health),
			cleared: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{}}},
		},
		features.ResourceHealthStatusMessage: {
			used: container(withMessage), cleared: container(health),
		},
	}
	for _, f := range statusFeatures() {
		if f.Gate == "" {
			continue
		}
		use, ok := uses[f.Gate]
		if !ok {
			t.Errorf("%s: no use", f.Gate)
			continue
		}
		off := func(gate featuregate.Feature) bool { return gate != f.Gate }
		check := func(what string, old *corev1.PodStatus, on func(featuregate.Feature) bool,
			want corev1.PodStatus) {
			got := use.used.DeepCopy()
			features.Drop(statusFeatures(), got, old, on)
			if !equality.Semantic.DeepEqual(*got, want) {
				t.Errorf("%s, %s: %+v, want %+v", f.Gate, what, *got, want)
			}
		}
		check("on", &corev1.PodStatus{}, func(featuregate.Feature) bool { return true }, use.used)
		check("off", &corev1.PodStatus{}, off, use.cleared)
		check("off, but used", &use.used, off, use.used)
	}
}
