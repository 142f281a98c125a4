package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// podTopologyLabels (PodTopologyLabels) copies the zone and region labels of a node to the pods
// that are bound to it (KEP-4742).
type podTopologyLabels struct {
	*admission.Handler
	plugin.WantsClient
}

func newPodTopologyLabels() admission.Interface {
	return &podTopologyLabels{Handler: admission.NewHandler(admission.Create)}
}

func (p *podTopologyLabels) Admit(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	if !features.Enabled(features.PodTopologyLabelsAdmission) {
		return nil
	}
	var meta *metav1.ObjectMeta
	var node string
	switch obj := a.GetObject().(type) {
	case *corev1.Pod:
		if !plugin.Is(a, pods, "") {
			return nil
		}
		meta, node = &obj.ObjectMeta, obj.Spec.NodeName
	case *corev1.Binding: // its labels are copied to the pod
		if !plugin.Is(a, pods, "binding") {
			return nil
		}
		meta, node = &obj.ObjectMeta, obj.Target.Name
		if obj.Target.Kind != "Node" {
			return nil
		}
	default:
		return nil
	}
	if node == "" || len(path.IsValidPathSegmentName(node)) > 0 { // such a node cannot exist
		return nil
	}
	found, err := p.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		if value, ok := found.Labels[key]; ok {
			metav1.SetMetaDataLabel(meta, key, value)
		}
	}
	return nil
}
