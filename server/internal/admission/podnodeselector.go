package admission

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kinproc/kinproc/chain/documents"
	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// nodeSelectorAnnotation is the namespace annotation with the node selector of the namespace's
// pods.
const nodeSelectorAnnotation = "scheduler.alpha.kubernetes.io/node-selector"

// podNodeSelector (PodNodeSelector) adds the namespace's node selector to pods and restricts what
// pods may add to it. Off by default.
type podNodeSelector struct {
	*admission.Handler
	plugin.WantsClient
	// selectors maps namespaces to the node selectors that they allow. It also contains the entry
	// clusterDefault.
	selectors map[string]string
}

// clusterDefault is the configuration entry for namespaces without the annotation.
const clusterDefault = "clusterDefaultNodeSelector"

func newPodNodeSelector(config io.Reader) (admission.Interface, error) {
	p := &podNodeSelector{Handler: admission.NewHandler(admission.Create)}
	if config == nil {
		return p, nil
	}
	var file struct {
		Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
	}
	if err := documents.Read(config, &file); err != nil {
		return nil, fmt.Errorf("PodNodeSelector configuration: %w", err)
	}
	p.selectors = file.Selectors
	return p, nil
}

func (p *podNodeSelector) Admit(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	pod, ok, err := plugin.Object[*corev1.Pod](a, pods)
	if !ok {
		return err
	}
	wanted, err := p.ofNamespace(ctx, a)
	if err != nil {
		return err
	}
	if !labels.Conflicts(wanted, pod.Spec.NodeSelector) {
		pod.Spec.NodeSelector = labels.Merge(wanted, pod.Spec.NodeSelector)
	}
	return p.validate(a, pod, wanted) // as in kube-apiserver, before the pod itself is validated
}

func (p *podNodeSelector) Validate(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	pod, ok, err := plugin.Object[*corev1.Pod](a, pods)
	if !ok {
		return err
	}
	wanted, err := p.ofNamespace(ctx, a)
	if err != nil {
		return err
	}
	return p.validate(a, pod, wanted)
}

// validate checks a pod against the node selector of its namespace and against the labels that the
// configuration allows for the namespace.
func (p *podNodeSelector) validate(
	a admission.Attributes, pod *corev1.Pod, wanted labels.Set,
) error {
	if labels.Conflicts(wanted, pod.Spec.NodeSelector) {
		return plugin.Forbid(a,
			"spec.nodeSelector conflicts with the node selector of the namespace %q, %s",
			a.GetNamespace(), wanted)
	}
	allowed, err := labels.ConvertSelectorToLabelsMap(p.selectors[a.GetNamespace()])
	if err != nil {
		return fmt.Errorf("PodNodeSelector configuration: %s: %w", a.GetNamespace(), err)
	}
	if len(allowed) == 0 {
		return nil
	}
	for key, value := range pod.Spec.NodeSelector {
		if is, ok := allowed[key]; !ok || is != value {
			return plugin.Forbid(a, "spec.nodeSelector: %s=%s is not among the node labels that pods in "+
				"the namespace %q may select", key, value, a.GetNamespace())
		}
	}
	return nil
}

func (p *podNodeSelector) ofNamespace(
	ctx context.Context, a admission.Attributes,
) (labels.Set, error) {
	ns, err := p.Client.CoreV1().Namespaces().Get(ctx, a.GetNamespace(), metav1.GetOptions{})
	if err != nil {
		return nil, admission.NewForbidden(a, err)
	}
	text, ok := ns.Annotations[nodeSelectorAnnotation]
	if !ok {
		text = p.selectors[clusterDefault]
	}
	set, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		return nil, fmt.Errorf("node selector of the namespace %q: %w", a.GetNamespace(), err)
	}
	return set, nil
}
