package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kinproc/kinproc/chain/documents"
	"github.com/kinproc/kinproc/server/internal/admission/plugin"
	"github.com/kinproc/kinproc/server/internal/admission/quota"
)

// The namespace annotations with the tolerations that pods get, and with the tolerations that pods
// may have. Both are JSON.
const (
	defaultTolerationsAnnotation = "scheduler.alpha.kubernetes.io/defaultTolerations"
	allowedTolerationsAnnotation = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

// podTolerations (PodTolerationRestriction) adds the namespace's tolerations to pods and rejects
// pods with tolerations that the namespace does not allow. Off by default.
type podTolerations struct {
	*admission.Handler
	plugin.WantsClient
	// defaults and allowed apply to namespaces without the annotations.
	defaults, allowed []corev1.Toleration
}

func newPodTolerations(config io.Reader) (admission.Interface, error) {
	p := &podTolerations{Handler: admission.NewHandler(admission.Create, admission.Update)}
	if config == nil {
		return p, nil
	}
	var file struct {
		Default []corev1.Toleration `json:"default"`
		Allowed []corev1.Toleration `json:"whitelist"`
	}
	if err := documents.Read(config, &file); err != nil {
		return nil, fmt.Errorf("PodTolerationRestriction configuration: %w", err)
	}
	p.defaults, p.allowed = file.Default, file.Allowed
	return p, nil
}

func (p *podTolerations) Admit(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	pod, ok, err := plugin.Object[*corev1.Pod](a, pods)
	if !ok {
		return err
	}
	if a.GetOperation() == admission.Create {
		tolerations, err := p.ofNamespace(ctx, a, defaultTolerationsAnnotation, p.defaults)
		if err != nil {
			return err
		}
		pod.Spec.Tolerations = mergeTolerations(pod.Spec.Tolerations, tolerations)
	}
	// the node controller taints nodes under memory pressure; pods with requests or limits tolerate
	// that
	if !quota.IsBestEffort(pod) {
		pod.Spec.Tolerations = mergeTolerations(pod.Spec.Tolerations, []corev1.Toleration{{
			Key:      corev1.TaintNodeMemoryPressure,
			Operator: corev1.TolerationOpExists,
			Effect:   corev1.TaintEffectNoSchedule,
		}})
	}
	return p.Validate(ctx, a, nil) // as in kube-apiserver, before the pod itself is validated
}

func (p *podTolerations) Validate(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	pod, ok, err := plugin.Object[*corev1.Pod](a, pods)
	if !ok || len(pod.Spec.Tolerations) == 0 {
		return err
	}
	allowed, err := p.ofNamespace(ctx, a, allowedTolerationsAnnotation, p.allowed)
	if err != nil || len(allowed) == 0 {
		return err
	}
	for i, t := range pod.Spec.Tolerations {
		if !slices.ContainsFunc(allowed, func(other corev1.Toleration) bool { return covers(other, t) }) {
			// As in kube-apiserver, this is a plain error and not a Forbidden status.
			return fmt.Errorf(
				"spec.tolerations[%d] is not among the tolerations that the namespace %q allows",
				i, a.GetNamespace())
		}
	}
	return nil
}

func (p *podTolerations) ofNamespace(
	ctx context.Context, a admission.Attributes, annotation string, otherwise []corev1.Toleration,
) ([]corev1.Toleration, error) {
	ns, err := p.Client.CoreV1().Namespaces().Get(ctx, a.GetNamespace(), metav1.GetOptions{})
	if err != nil {
		return nil, admission.NewForbidden(a, err)
	}
	text, ok := ns.Annotations[annotation]
	if !ok {
		return otherwise, nil
	}
	if text == "" {
		return nil, nil
	}
	var tolerations []corev1.Toleration
	if err := json.Unmarshal([]byte(text), &tolerations); err != nil {
		return nil, fmt.Errorf("annotation %s of the namespace %q: %w", annotation, a.GetNamespace(), err)
	}
	return tolerations, nil
}
