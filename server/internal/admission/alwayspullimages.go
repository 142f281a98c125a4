package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// alwaysPullImages (AlwaysPullImages) sets the image pull policy of pods to Always, so that nodes
// check the pod's credentials even for images they already have. Off by default.
type alwaysPullImages struct{ *admission.Handler }

func newAlwaysPullImages() admission.Interface {
	return alwaysPullImages{admission.NewHandler(admission.Create, admission.Update)}
}

func (alwaysPullImages) Admit(
	_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	pod, err := podWithNewImages(a)
	if pod == nil {
		return err
	}
	pullPolicies(&pod.Spec, func(policy *corev1.PullPolicy, _ *field.Path) {
		*policy = corev1.PullAlways
	})
	return nil
}

func (alwaysPullImages) Validate(
	_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	pod, err := podWithNewImages(a)
	if pod == nil {
		return err
	}
	var errs field.ErrorList
	pullPolicies(&pod.Spec, func(policy *corev1.PullPolicy, at *field.Path) {
		if *policy != corev1.PullAlways {
			errs = append(errs, field.NotSupported(at, *policy, []corev1.PullPolicy{corev1.PullAlways}))
		}
	})
	if len(errs) > 0 {
		return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), errs)
	}
	return nil
}

// podWithNewImages returns the pod of a request. It returns nil if the request is not about a pod
// or adds no image to it.
func podWithNewImages(a admission.Attributes) (*corev1.Pod, error) {
	pod, ok, err := plugin.Object[*corev1.Pod](a, pods)
	if !ok || a.GetOperation() != admission.Update {
		return pod, err
	}
	old, err := plugin.Cast[*corev1.Pod](a.GetOldObject())
	if err != nil || images(&old.Spec).IsSuperset(images(&pod.Spec)) {
		return nil, err
	}
	return pod, nil
}

func images(spec *corev1.PodSpec) sets.Set[string] {
	images := sets.New[string]()
	plugin.Containers(spec, func(c *corev1.Container) { images.Insert(c.Image) })
	for _, c := range spec.EphemeralContainers {
		images.Insert(c.Image)
	}
	for _, v := range spec.Volumes {
		if v.Image != nil {
			images.Insert(v.Image.Reference)
		}
	}
	return images
}

func pullPolicies(spec *corev1.PodSpec, visit func(policy *corev1.PullPolicy, at *field.Path)) {
	root := field.NewPath("spec")
	for i := range spec.InitContainers {
		visit(&spec.InitContainers[i].ImagePullPolicy,
			root.Child("initContainers").Index(i).Child("imagePullPolicy"))
	}
	for i := range spec.Containers {
		visit(&spec.Containers[i].ImagePullPolicy,
			root.Child("containers").Index(i).Child("imagePullPolicy"))
	}
	for i := range spec.EphemeralContainers {
		visit(&spec.EphemeralContainers[i].ImagePullPolicy,
			root.Child("ephemeralContainers").Index(i).Child("imagePullPolicy"))
	}
	for i := range spec.Volumes {
		if image := spec.Volumes[i].Image; image != nil {
			visit(&image.PullPolicy, root.Child("volumes").Index(i).Child("image", "pullPolicy"))
		}
	}
}
