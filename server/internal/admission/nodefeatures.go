package admission

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-helpers/nodedeclaredfeatures"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// nodeFeatures (NodeDeclaredFeatureValidator) rejects updates of a pod that require a feature that
// the pod's node does not declare (KEP-5328).
type nodeFeatures struct {
	*admission.Handler
	plugin.WantsClient
	version *version.Version
}

func newNodeFeatures() admission.Interface {
	return &nodeFeatures{Handler: admission.NewHandler(admission.Update)}
}

// InspectEffectiveVersion implements initializer.WantsEffectiveVersion. Nodes need not declare
// features that every node of this version supports.
func (p *nodeFeatures) InspectEffectiveVersion(v compatibility.EffectiveVersion) {
	p.version = v.EmulationVersion()
}

func (p *nodeFeatures) Validate(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	if !features.Enabled(features.NodeDeclaredFeatures) ||
		!plugin.Is(a, pods, "") && !plugin.Is(a, pods, "resize") {
		return nil
	}
	pod, old, err := changedOnNode(a)
	if pod == nil {
		return err
	}
	framework := nodedeclaredfeatures.DefaultFramework
	needed, err := framework.InferForPodUpdate(podInfo(old), podInfo(pod), p.version)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if needed.IsEmpty() {
		return nil
	}
	node, err := nodeOf(ctx, p.Client, a, pod)
	if err != nil {
		return err
	}
	match, err := framework.MatchNode(needed, node)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if !match.IsMatch {
		return plugin.Forbid(a, "node %q does not declare the required features: %s", node.Name,
			strings.Join(match.UnsatisfiedRequirements, ", "))
	}
	return nil
}

func podInfo(pod *corev1.Pod) *nodedeclaredfeatures.PodInfo {
	return &nodedeclaredfeatures.PodInfo{Spec: &pod.Spec, Status: &pod.Status}
}

// changedOnNode returns the new and the old pod of an update. It returns nil unless the pod is
// bound to a node and its spec has changed.
func changedOnNode(a admission.Attributes) (pod, old *corev1.Pod, err error) {
	if pod, err = plugin.Cast[*corev1.Pod](a.GetObject()); err != nil {
		return nil, nil, err
	}
	if old, err = plugin.Cast[*corev1.Pod](a.GetOldObject()); err != nil || pod.Spec.NodeName == "" ||
		pod.Generation == old.Generation {
		return nil, nil, err
	}
	return pod, old, nil
}

// nodeOf returns the node that a pod is bound to.
func nodeOf(
	ctx context.Context, client kubernetes.Interface, a admission.Attributes, pod *corev1.Pod,
) (*corev1.Node, error) {
	node, err := client.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, plugin.Forbid(a, "the pod's node %q was not found", pod.Spec.NodeName)
	case err != nil:
		return nil, admission.NewForbidden(a, err)
	}
	return node, nil
}
