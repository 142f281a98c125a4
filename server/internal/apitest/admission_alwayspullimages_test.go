package apitest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestAdmissionAlwaysPullImages(t *testing.T) {
	t.Parallel()
	full := func(image string) *corev1.Pod {
		return newPod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Image = image
			p.Spec.Containers[0].ImagePullPolicy = corev1.PullNever
			p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: image}}
			p.Spec.Volumes = []corev1.Volume{{
				Name:         "v",
				VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: image}},
			}}
		})
	}
	for name, c := range map[string]struct {
		resource string
		old      *corev1.Pod
		want     corev1.PullPolicy
	}{
		"create":      {"pods", nil, corev1.PullAlways},
		"new image":   {"pods", full("other"), corev1.PullAlways},
		"same images": {"pods", full("i"), corev1.PullNever},
		"subresource": {"pods/resize", full("other"), corev1.PullNever},
		"not a pod":   {"nodes", nil, corev1.PullNever},
	} {
		pod := full("i")
		err := ask(t, newPlugin(t, "AlwaysPullImages", nil), c.resource, pod, c.old)
		if got := pod.Spec.Containers[0].ImagePullPolicy; err != nil || got != c.want {
			t.Errorf("%s: got pull policy %s (%v), want %s", name, got, err, c.want)
		}
		if c.want == corev1.PullAlways && (pod.Spec.InitContainers[0].ImagePullPolicy != c.want ||
			pod.Spec.Volumes[0].Image.PullPolicy != c.want) {
			t.Errorf("%s: the pull policy of init containers or volumes was not set: %+v", name, pod.Spec)
		}
	}
}
