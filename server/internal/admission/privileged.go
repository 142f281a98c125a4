package admission

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
)

// RefusePrivileged puts the rule of --allow-privileged=false in front of the plugins. It is not a
// plugin: kube-apiserver has the rule in its validation, and responds in the same way.
func RefusePrivileged(plugins admission.Interface) admission.Interface {
	return admission.NewChainHandler(unprivileged{}, plugins)
}

// unprivileged refuses pods, and templates of pods, with privileged containers.
type unprivileged struct{}

var _ admission.ValidationInterface = unprivileged{}

func (unprivileged) Handles(o admission.Operation) bool {
	return o == admission.Create || o == admission.Update
}

func (unprivileged) Validate(
	_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	if a.GetSubresource() == "status" {
		return nil
	}
	spec, path := podSpec(a.GetObject())
	if spec == nil {
		return nil
	}
	if errs := privileges(spec, path); len(errs) > 0 {
		return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), errs)
	}
	return nil
}

// podSpec returns the specification of pods in an object, and its path. It returns nil if the
// object has none.
func podSpec(object runtime.Object) (*corev1.PodSpec, *field.Path) {
	spec := field.NewPath("spec")
	template := spec.Child("template", "spec")
	switch o := object.(type) {
	case *corev1.Pod:
		return &o.Spec, spec
	case *corev1.PodTemplate:
		return &o.Template.Spec, field.NewPath("template", "spec")
	case *corev1.ReplicationController:
		if o.Spec.Template != nil {
			return &o.Spec.Template.Spec, template
		}
	case *appsv1.ReplicaSet:
		return &o.Spec.Template.Spec, template
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec, template
	case *appsv1.StatefulSet:
		return &o.Spec.Template.Spec, template
	case *appsv1.DaemonSet:
		return &o.Spec.Template.Spec, template
	case *batchv1.Job:
		return &o.Spec.Template.Spec, template
	case *batchv1.CronJob:
		path := spec.Child("jobTemplate", "spec", "template", "spec")
		return &o.Spec.JobTemplate.Spec.Template.Spec, path
	}
	return nil, nil
}

// privileges returns an error for each privileged container, and one if there are containers in the
// host's process namespace on Windows.
func privileges(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	ofPod, onHost := false, false
	if pod := spec.SecurityContext; pod != nil {
		ofPod = onWindowsHost(pod.WindowsOptions, false)
	}
	check := func(list string, i int, sc *corev1.SecurityContext) {
		if sc == nil {
			onHost = onHost || ofPod
			return
		}
		onHost = onHost || onWindowsHost(sc.WindowsOptions, ofPod)
		if sc.Privileged != nil && *sc.Privileged {
			at := path.Child(list).Index(i).Child("securityContext", "privileged")
			errs = append(errs, field.Forbidden(at, "disallowed by cluster policy "+because))
		}
	}
	for i, c := range spec.InitContainers {
		check("initContainers", i, c.SecurityContext)
	}
	for i, c := range spec.Containers {
		check("containers", i, c.SecurityContext)
	}
	for i, c := range spec.EphemeralContainers {
		check("ephemeralContainers", i, c.SecurityContext)
	}
	if onHost {
		detail := "hostProcess containers are disallowed by cluster policy " + because
		errs = append(errs, field.Forbidden(path, detail))
	}
	return errs
}

// because names the reason for a refusal.
const because = "(--allow-privileged=false)"

// onWindowsHost returns whether a container runs in the host's process namespace. Without a setting
// of its own it inherits that of the pod.
func onWindowsHost(o *corev1.WindowsSecurityContextOptions, inherited bool) bool {
	if o == nil || o.HostProcess == nil {
		return inherited
	}
	return *o.HostProcess
}
