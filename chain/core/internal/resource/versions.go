package resource

import (
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/conversion"
	v1beta1 "k8s.io/dynamic-resource-allocation/api/v1beta1"

	"github.com/kinproc/kinproc/chain/kind"
)

// converted declares a version that k8s.io/dynamic-resource-allocation converts. It is defaulted
// like the hub version.
func converted[V, H kind.Object](
	toHub func(V, H, conversion.Scope) error, fromHub func(H, V, conversion.Scope) error,
	newHub func() H, defaults func(H),
) kind.Version {
	to := func(in V, out H) error { return toHub(in, out, nil) }
	from := func(in H, out V) error { return fromHub(in, out, nil) }
	return kind.ServedAs(to, from, func(obj V) {
		hub := newHub()
		// Conversion does not fail for an object that was decoded. If it did, the conversion for
		// storage would refuse the object.
		if defaults == nil || to(obj, hub) != nil {
			return
		}
		defaults(hub)
		_ = from(hub, obj)
	})
}

func deviceClassVersions() []kind.Version {
	return []kind.Version{
		kind.ServedAsSame[*resourcev1beta2.DeviceClass, *resourcev1.DeviceClass](),
		converted(v1beta1.Convert_v1beta1_DeviceClass_To_v1_DeviceClass,
			v1beta1.Convert_v1_DeviceClass_To_v1beta1_DeviceClass,
			func() *resourcev1.DeviceClass { return &resourcev1.DeviceClass{} }, nil),
	}
}

func claimVersions() []kind.Version {
	return []kind.Version{
		kind.ServedAsSame[*resourcev1beta2.ResourceClaim, *resourcev1.ResourceClaim](),
		converted(v1beta1.Convert_v1beta1_ResourceClaim_To_v1_ResourceClaim,
			v1beta1.Convert_v1_ResourceClaim_To_v1beta1_ResourceClaim,
			func() *resourcev1.ResourceClaim { return &resourcev1.ResourceClaim{} },
			func(c *resourcev1.ResourceClaim) { defaultClaim(c, true) }),
	}
}

func claimTemplateVersions() []kind.Version {
	return []kind.Version{
		kind.ServedAsSame[*resourcev1beta2.ResourceClaimTemplate, *resourcev1.ResourceClaimTemplate](),
		converted(v1beta1.Convert_v1beta1_ResourceClaimTemplate_To_v1_ResourceClaimTemplate,
			v1beta1.Convert_v1_ResourceClaimTemplate_To_v1beta1_ResourceClaimTemplate,
			func() *resourcev1.ResourceClaimTemplate { return &resourcev1.ResourceClaimTemplate{} },
			func(t *resourcev1.ResourceClaimTemplate) { defaultDevices(&t.Spec.Spec.Devices, true) }),
	}
}

func sliceVersions() []kind.Version {
	return []kind.Version{
		kind.ServedAsSame[*resourcev1beta2.ResourceSlice, *resourcev1.ResourceSlice](),
		converted(v1beta1.Convert_v1beta1_ResourceSlice_To_v1_ResourceSlice,
			v1beta1.Convert_v1_ResourceSlice_To_v1beta1_ResourceSlice,
			func() *resourcev1.ResourceSlice { return &resourcev1.ResourceSlice{} }, defaultSlice),
	}
}
