package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// taintNodes (TaintNodesByCondition) taints new nodes as not ready. This keeps pods away until the
// node controller has found the node ready.
type taintNodes struct{ *admission.Handler }

func newTaintNodes() admission.Interface {
	return taintNodes{admission.NewHandler(admission.Create)}
}

func (taintNodes) Admit(
	_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	node, ok, err := plugin.Object[*corev1.Node](a, corev1.Resource("nodes"))
	if !ok {
		return err
	}
	taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(node.Spec.Taints,
		func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
	return nil
}
