package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// runtimeClass (RuntimeClass) sets the overhead, node selector and tolerations of a pod from its
// runtime class (KEP-585, KEP-688).
type runtimeClass struct {
	*admission.Handler
	plugin.WantsClient
}

func newRuntimeClass() admission.Interface {
	return &runtimeClass{Handler: admission.NewHandler(admission.Create)}
}

func (p *runtimeClass) Admit(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	pod, ok, err := plugin.Object[*corev1.Pod](a, pods)
	if !ok {
		return err
	}
	class, err := p.of(ctx, a, pod)
	if class == nil {
		return err
	}
	if class.Overhead != nil {
		if len(pod.Spec.Overhead) > 0 &&
			!apiequality.Semantic.DeepEqual(pod.Spec.Overhead, class.Overhead.PodFixed) {
			return plugin.Forbid(a,
				"spec.overhead differs from the overhead of the runtime class %q: omit the field", class.Name)
		}
		pod.Spec.Overhead = class.Overhead.PodFixed
	}
	if class.Scheduling == nil {
		return nil
	}
	for key, value := range class.Scheduling.NodeSelector {
		if is, ok := pod.Spec.NodeSelector[key]; ok && is != value {
			return plugin.Forbid(a,
				"spec.nodeSelector: %s is %q, which conflicts with %q in the runtime class %q", key,
				is, value, class.Name)
		}
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[key] = value
	}
	pod.Spec.Tolerations = mergeTolerations(pod.Spec.Tolerations, class.Scheduling.Tolerations)
	return nil
}

func (p *runtimeClass) Validate(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	pod, ok, err := plugin.Object[*corev1.Pod](a, pods)
	if !ok {
		return err
	}
	class, err := p.of(ctx, a, pod)
	if err != nil {
		return err
	}
	var want corev1.ResourceList
	if class != nil && class.Overhead != nil {
		want = class.Overhead.PodFixed
	} else if pod.Spec.Overhead != nil {
		return plugin.Forbid(a, "spec.overhead: only a runtime class with an overhead may set it")
	}
	if !apiequality.Semantic.DeepEqual(want, pod.Spec.Overhead) {
		return plugin.Forbid(a,
			"spec.overhead differs from the overhead of the runtime class %q", class.Name)
	}
	return nil
}

// of returns the runtime class of a pod, or nil if it has none.
func (p *runtimeClass) of(
	ctx context.Context, a admission.Attributes, pod *corev1.Pod,
) (*nodev1.RuntimeClass, error) {
	if pod.Spec.RuntimeClassName == nil {
		return nil, nil
	}
	class, err := p.Client.NodeV1().RuntimeClasses().Get(ctx, *pod.Spec.RuntimeClassName,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, plugin.Forbid(a, "pod rejected: RuntimeClass %q not found",
			*pod.Spec.RuntimeClassName)
	}
	if err != nil {
		return nil, err
	}
	return class, nil
}

// mergeTolerations concatenates lists of tolerations. It omits those that others cover.
func mergeTolerations(lists ...[]corev1.Toleration) []corev1.Toleration {
	all := slices.Concat(lists...)
	var merged []corev1.Toleration
	for i, t := range all {
		covered := slices.ContainsFunc(merged, func(other corev1.Toleration) bool {
			return covers(other, t)
		}) ||
			slices.ContainsFunc(all[i+1:], func(other corev1.Toleration) bool {
				// of two equal ones, keep the first
				return !apiequality.Semantic.DeepEqual(other, t) && covers(other, t)
			})
		if !covered {
			merged = append(merged, t)
		}
	}
	return merged
}

// covers reports whether a tolerates everything that b tolerates.
func covers(a, b corev1.Toleration) bool {
	if apiequality.Semantic.DeepEqual(a, b) {
		return true
	}
	if a.Key != b.Key && (a.Key != "" || a.Operator != corev1.TolerationOpExists) {
		return false
	}
	if a.Effect != b.Effect && a.Effect != "" {
		return false
	}
	if a.Effect == corev1.TaintEffectNoExecute && a.TolerationSeconds != nil &&
		(b.TolerationSeconds == nil || *a.TolerationSeconds < *b.TolerationSeconds) {
		return false
	}
	switch a.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		return b.Operator == corev1.TolerationOpEqual && a.Value == b.Value
	}
	return false
}
