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

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// nodeFeatures (NodeDeclaredFeatureValidator) refuses changes of a pod that its node says nothing of being able to follow (KEP-5328).
type nodeFeatures struct {
	*admission.Handler
	plugin.WantsClient
	version *version.Version
}

func newNodeFeatures() admission.Interface {
	return &nodeFeatures{Handler: admission.NewHandler(admission.Update)}
}

// InspectEffectiveVersion implements initializer.WantsEffectiveVersion: nodes need not declare what every node of the version can.
func (p *nodeFeatures) InspectEffectiveVersion(v compatibility.EffectiveVersion) {
	p.version = v.EmulationVersion()
}

func (p *nodeFeatures) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !plugin.Is(a, pods, "") && !plugin.Is(a, pods, "resize") {
		return nil
	}
	pod, old, err := changedOnNode(a)
	if pod == nil {
		return err
	}
	features := nodedeclaredfeatures.DefaultFramework
	needed, err := features.InferForPodUpdate(podInfo(old), podInfo(pod), p.version)
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
	match, err := features.MatchNode(needed, node)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if !match.IsMatch {
		return plugin.Forbid(a, "the node %q does not declare the features that this takes: %s", node.Name, strings.Join(match.UnsatisfiedRequirements, ", "))
	}
	return nil
}

func podInfo(pod *corev1.Pod) *nodedeclaredfeatures.PodInfo {
	return &nodedeclaredfeatures.PodInfo{Spec: &pod.Spec, Status: &pod.Status}
}

// changedOnNode is the pod of an update if it is on a node and its spec differs from that before.
func changedOnNode(a admission.Attributes) (pod, old *corev1.Pod, err error) {
	if pod, err = plugin.Cast[*corev1.Pod](a.GetObject()); err != nil {
		return nil, nil, err
	}
	if old, err = plugin.Cast[*corev1.Pod](a.GetOldObject()); err != nil || pod.Spec.NodeName == "" || pod.Generation == old.Generation {
		return nil, nil, err
	}
	return pod, old, nil
}

// nodeOf returns the node that a pod is on.
func nodeOf(ctx context.Context, client kubernetes.Interface, a admission.Attributes, pod *corev1.Pod) (*corev1.Node, error) {
	node, err := client.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, plugin.Forbid(a, "the node %q of the pod was not found", pod.Spec.NodeName)
	case err != nil:
		return nil, admission.NewForbidden(a, err)
	}
	return node, nil
}
