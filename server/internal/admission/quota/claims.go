package quota

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/features"
)

// classSuffix separates the name of a storage class from the resource that a quota limits.
const classSuffix = ".storageclass.storage.k8s.io/"

func claims(list lists) quota.Evaluator {
	gvr := corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	count := generic.ObjectCountQuotaResourceNameFor(gvr.GroupResource())
	return &evaluator[*corev1.PersistentVolumeClaim]{
		resource: gvr.GroupResource(),
		list:     list(gvr),
		handles:  onWrite,
		limits: func(name corev1.ResourceName) bool {
			switch name {
			case count, corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage:
				return true
			}
			_, what, ok := strings.Cut(string(name), classSuffix)
			return ok && (what == string(corev1.ResourceRequestsStorage) ||
				what == string(corev1.ResourcePersistentVolumeClaims))
		},
		usage: func(claim *corev1.PersistentVolumeClaim) corev1.ResourceList {
			one := *apiresource.NewQuantity(1, apiresource.DecimalSI)
			used := corev1.ResourceList{count: one, corev1.ResourcePersistentVolumeClaims: one}
			class := volume.GetPersistentVolumeClaimClass(claim)
			if class != "" {
				used[corev1.ResourceName(class+classSuffix)+corev1.ResourcePersistentVolumeClaims] = one
			}
			size, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]
			if !ok {
				return used
			}
			// A claim that was reduced after a failed expansion may still have the larger size
			// allocated.
			if allocated :=
				claim.Status.AllocatedResources[corev1.ResourceStorage]; allocated.Cmp(size) > 0 {
				size = allocated
			}
			used[corev1.ResourceRequestsStorage] = size
			if class != "" {
				used[corev1.ResourceName(class+classSuffix)+corev1.ResourceRequestsStorage] = size
			}
			return used
		},
		inScope: func(
			scope corev1.ScopedResourceSelectorRequirement, claim *corev1.PersistentVolumeClaim,
		) (bool, error) {
			if scope.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
				return false, nil
			}
			var names []string
			for _, name := range []*string{
				claim.Spec.VolumeAttributesClassName, claim.Status.CurrentVolumeAttributesClassName,
			} {
				if name := ptr.Deref(name, ""); name != "" {
					names = append(names, name)
				}
			}
			if modify := claim.Status.ModifyVolumeStatus; modify != nil &&
				modify.TargetVolumeAttributesClassName != "" {
				names = append(names, modify.TargetVolumeAttributesClassName)
			}
			if len(names) == 0 {
				return selected(scope, "")
			}
			for _, name := range names {
				if ok, err := selected(scope, name); ok || err != nil {
					return ok, err
				}
			}
			return false, nil
		},
	}
}

// resourceClaims returns the evaluator of resource claims. It counts the devices that claims
// request, by device class (KEP-4381).
func resourceClaims(list lists) quota.Evaluator {
	const implicit = corev1.ResourceImplicitExtendedClaimsPerClass
	gvr := resourcev1.SchemeGroupVersion.WithResource("resourceclaims")
	count := generic.ObjectCountQuotaResourceNameFor(gvr.GroupResource())
	return &evaluator[*resourcev1.ResourceClaim]{
		resource: gvr.GroupResource(),
		list:     list(gvr),
		handles:  onWrite,
		limits: func(name corev1.ResourceName) bool {
			return name == count || strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass) ||
				features.Enabled(features.DRAExtendedResource) &&
					strings.HasPrefix(string(name), implicit)
		},
		usage: func(claim *resourcev1.ResourceClaim) corev1.ResourceList {
			devices := map[string]int64{}
			for _, r := range claim.Spec.Devices.Requests {
				if r.Exactly != nil {
					devices[r.Exactly.DeviceClassName] += howMany(r.Exactly.AllocationMode, r.Exactly.Count)
				}
				most := map[string]int64{} // only one of the alternatives is allocated
				for _, s := range r.FirstAvailable {
					most[s.DeviceClassName] = max(most[s.DeviceClassName], howMany(s.AllocationMode, s.Count))
				}
				for class, n := range most {
					devices[class] += n
				}
			}
			used := corev1.ResourceList{count: *apiresource.NewQuantity(1, apiresource.DecimalSI)}
			for class, n := range devices {
				q := *apiresource.NewQuantity(n, apiresource.DecimalSI)
				used[corev1.ResourceName(class+corev1.ResourceClaimsPerClass)] = q
				if features.Enabled(features.DRAExtendedResource) {
					used[corev1.ResourceName(implicit+class)] = q
				}
			}
			return used
		},
	}
}

// howMany returns the number of devices that a request counts. All counts as the maximum that a
// claim can have, and an unknown mode as none.
func howMany(mode resourcev1.DeviceAllocationMode, count int64) int64 {
	switch mode {
	case resourcev1.DeviceAllocationModeAll:
		return resourcev1.AllocationResultsMaxSize
	case resourcev1.DeviceAllocationModeExactCount:
		return count
	}
	return 0
}
