package noderestriction

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// ownNode restricts a kubelet to its own node. The kubelet may not change the taints, owner
// references or reserved labels of that node, which could attract pods to it. Nor may it set a
// config source, which would let it read other objects.
func ownNode(a admission.Attributes, node string) error {
	if nameOf(a) != node {
		return plugin.Forbid(a, "a kubelet may only modify its own node, %q", node)
	}
	if a.GetOperation() == admission.Delete {
		return nil
	}
	n, err := plugin.Cast[*corev1.Node](a.GetObject())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	old := &corev1.Node{}
	if a.GetOperation() == admission.Update {
		if old, err = plugin.Cast[*corev1.Node](a.GetOldObject()); err != nil {
			return admission.NewForbidden(a, err)
		}
		if !apiequality.Semantic.DeepEqual(n.Spec.Taints, old.Spec.Taints) {
			return plugin.Forbid(a, "a kubelet may not change spec.taints of its node")
		}
		if !apiequality.Semantic.DeepEqual(n.OwnerReferences, old.OwnerReferences) {
			return plugin.Forbid(a, "a kubelet may not change metadata.ownerReferences of its node")
		}
	}
	if n.Spec.ConfigSource != nil &&
		!apiequality.Semantic.DeepEqual(n.Spec.ConfigSource, old.Spec.ConfigSource) {
		return plugin.Forbid(a, "a kubelet may not set spec.configSource of its node")
	}
	if changed := reservedLabels(n.Labels, old.Labels); len(changed) > 0 {
		return plugin.Forbid(a, "a kubelet may not change these labels of its node: %s",
			strings.Join(changed, ", "))
	}
	return nil
}

// reservedLabels returns the changed labels that a kubelet may not change: labels in the domain
// node-restriction.kubernetes.io, and labels in the domains kubernetes.io and k8s.io that kubelets
// do not set themselves.
func reservedLabels(labels, old map[string]string) []string {
	reserved := sets.New[string]()
	look := func(labels, other map[string]string) {
		for key, value := range labels {
			if was, ok := other[key]; (!ok || was != value) && isReserved(key) {
				reserved.Insert(key)
			}
		}
	}
	look(labels, old)
	look(old, labels)
	return sets.List(reserved)
}

func isReserved(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	if !ok {
		return false
	}
	in := func(domains ...string) bool {
		return slices.ContainsFunc(domains, func(d string) bool {
			return domain == d || strings.HasSuffix(domain, "."+d)
		})
	}
	if in(corev1.LabelNamespaceNodeRestriction) {
		return true
	}
	switch key {
	case corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os",
		"beta.kubernetes.io/arch",
		corev1.LabelInstanceType, corev1.LabelInstanceTypeStable,
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone,
		corev1.LabelFailureDomainBetaRegion:
		return false
	}
	return in("kubernetes.io", "k8s.io") &&
		!in(corev1.LabelNamespaceSuffixKubelet, corev1.LabelNamespaceSuffixNode)
}
