package noderestriction

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// claimStatus restricts a kubelet to the fields of a claim's status that report a volume expansion.
func claimStatus(a admission.Attributes, node string) error {
	if a.GetSubresource() != "status" || a.GetOperation() != admission.Update {
		return plugin.Forbid(a, "a kubelet may only update the status of persistent volume claims")
	}
	claim, err := plugin.Cast[*corev1.PersistentVolumeClaim](a.GetObject())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	old, err := plugin.Cast[*corev1.PersistentVolumeClaim](a.GetOldObject())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	rest := func(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
		claim = claim.DeepCopy()
		claim.ResourceVersion, claim.ManagedFields = "", nil
		s := &claim.Status
		s.Capacity, s.Conditions, s.AllocatedResources, s.AllocatedResourceStatuses = nil, nil, nil, nil
		return claim
	}
	if !apiequality.Semantic.DeepEqual(rest(claim), rest(old)) {
		return plugin.Forbid(a, "the kubelet of node %q may only change capacity, "+
			"conditions and allocated resources in the status of a persistent volume claim", node)
	}
	return nil
}

// sameName restricts a kubelet to the object with the name of its node. It is for resources that
// have one object per node.
func sameName(a admission.Attributes, node string) error {
	if nameOf(a) != node {
		return plugin.Forbid(a,
			"a kubelet may only modify the object with the name of its node, %q", node)
	}
	return nil
}

// nameOf returns the name of the object. In a create request, it may be only in the object's
// metadata.
func nameOf(a admission.Attributes) string {
	if name := a.GetName(); name != "" || a.GetOperation() != admission.Create {
		return name
	}
	if m, err := meta.Accessor(a.GetObject()); err == nil {
		return m.GetName()
	}
	return ""
}

// ownSlice requires new and deleted resource slices to be of the kubelet's node, including each
// slice of a deleted collection. In other requests the authorizer has checked the name or the field
// selector.
func ownSlice(a admission.Attributes, node string) error {
	obj := a.GetObject()
	switch a.GetOperation() {
	case admission.Update:
		return nil
	case admission.Delete:
		obj = a.GetOldObject()
	}
	slice, err := plugin.Cast[*resourcev1.ResourceSlice](obj)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if slice.Spec.NodeName == nil || *slice.Spec.NodeName != node {
		return plugin.Forbid(a, "spec.nodeName of a kubelet's resource slice must be %q", node)
	}
	return nil
}
