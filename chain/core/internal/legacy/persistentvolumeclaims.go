package legacy

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/claims"
	"github.com/kinproc/kinproc/chain/core/internal/rules/quantities"
	"github.com/kinproc/kinproc/chain/kind"
)

var claimResourceStatuses = sets.New(corev1.PersistentVolumeClaimControllerResizeInProgress,
	corev1.PersistentVolumeClaimControllerResizeInfeasible,
	corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress,
	corev1.PersistentVolumeClaimNodeResizeInfeasible)

// PersistentVolumeClaims declares persistentvolumeclaims.
func PersistentVolumeClaims() *kind.Kind[*corev1.PersistentVolumeClaim] {
	return &kind.Kind[*corev1.PersistentVolumeClaim]{
		Plural:     "persistentvolumeclaims",
		ShortNames: []string{"pvc"},
		Default: func(c *corev1.PersistentVolumeClaim) {
			setIfEmpty(&c.Status.Phase, corev1.ClaimPending)
			claims.DefaultSpec(&c.Spec)
			quantities.RoundUp(c.Status.Capacity, c.Status.AllocatedResources)
		},
		// Like kube-apiserver, do not store a phase in a new claim. It is defaulted on reads and
		// stored with the first update.
		PrepareCreate: func(_ context.Context, c *corev1.PersistentVolumeClaim) {
			claims.PrepareSpec(&c.Spec, nil)
		},
		PrepareUpdate: func(_ context.Context, c, old *corev1.PersistentVolumeClaim) {
			claims.PrepareSpec(&c.Spec, &old.Spec)
			claims.MirrorDataSource(&old.Spec)
		},
		Validate: func(_ context.Context, c *corev1.PersistentVolumeClaim) field.ErrorList {
			return claims.ValidateSpec(&c.Spec, field.NewPath("spec"), claims.Options{})
		},
		ValidateUpdate: validateClaimUpdate,
		Table: kind.Table[*corev1.PersistentVolumeClaim]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Status", Description: "Phase of the claim."},
				{Name: "Volume", Description: "Volume that the claim is bound to."},
				{Name: "Capacity", Description: "Capacity of the volume."},
				{Name: "Access Modes", Description: "Access modes of the volume."},
				{Name: "StorageClass", Description: "Storage class that the claim requests."},
				{
					Name:        "VolumeAttributesClass",
					Description: "Volume attributes class that the claim requests.",
				},
				kind.AgeColumn(),
				{
					Name:        "VolumeMode",
					Priority:    1,
					Description: "Whether the claim requests a file system or a block device.",
				},
			},
			Row: claimRow,
		},
		Warnings: warnClaim,
		Status: &kind.Status[*corev1.PersistentVolumeClaim]{
			Prepare: func(_ context.Context, c, old *corev1.PersistentVolumeClaim) {
				// healthStatus belongs to the alpha feature CSIVolumeHealth.
				c.Status.HealthStatus = old.Status.HealthStatus
			},
			Validate: validateClaimStatus,
		},
		Adjust: func(store *genericregistry.Store) {
			// Mirror dataSource in claims that were stored before dataSourceRef existed.
			store.Decorator = mirrorStoredDataSources
		},
		Quirks: kind.Quirks{NameOnUpdate: true, ReturnDeleted: true},
	}
}

func mirrorStoredDataSources(obj runtime.Object) {
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		claims.MirrorDataSource(&o.Spec)
	case *corev1.PersistentVolumeClaimList:
		for i := range o.Items {
			claims.MirrorDataSource(&o.Items[i].Spec)
		}
	}
}

func claimRow(c *corev1.PersistentVolumeClaim) []any {
	phase := string(c.Status.Phase)
	if c.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	capacity, modes := "", ""
	if c.Spec.VolumeName != "" {
		size := c.Status.Capacity[corev1.ResourceStorage]
		capacity, modes = size.String(), accessModesCell(c.Status.AccessModes)
	}
	class := ""
	if c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	return []any{
		c.Name, phase, c.Spec.VolumeName, capacity, modes,
		storageClassCell(c, class), attributesClassCell(c.Spec.VolumeAttributesClassName), kind.Age(c),
		volumeModeCell(c.Spec.VolumeMode),
	}
}

// validateClaimUpdate allows few changes: volumeName may be set once, a missing storage class may
// be filled in, and a bound claim may change its storage request and its volume attributes class.
func validateClaimUpdate(_ context.Context, c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	spec := field.NewPath("spec")
	errs := claims.ValidateSpec(&c.Spec, spec, claims.OptionsFor(&old.Spec))

	// want is the old spec with the permitted one-time settings copied from the new spec.
	want := old.Spec.DeepCopy()
	if want.VolumeName == "" {
		want.VolumeName = c.Spec.VolumeName
	}
	annotated, hadAnnotation := old.Annotations[corev1.BetaStorageClassAnnotation]
	now, hasAnnotation := c.Annotations[corev1.BetaStorageClassAnnotation]
	class := c.Spec.StorageClassName
	if want.StorageClassName == nil && class != nil && (!hadAnnotation || *class == annotated) {
		want.StorageClassName = class
	}
	movedToField := hadAnnotation && old.Spec.StorageClassName == nil && class != nil &&
		*class == annotated && (!hasAnnotation || now == annotated)
	if !movedToField && annotated != now {
		errs = append(errs,
			field.Invalid(field.NewPath("metadata", "annotations", corev1.BetaStorageClassAnnotation),
				now, "cannot be changed"))
	}
	got := c.Spec.DeepCopy()
	if c.Status.Phase == corev1.ClaimBound {
		if got.Resources.Requests != nil {
			got.Resources.Requests[corev1.ResourceStorage] =
				old.Spec.Resources.Requests[corev1.ResourceStorage]
		}
		got.VolumeAttributesClassName = old.Spec.VolumeAttributesClassName
	}
	if !equality.Semantic.DeepEqual(got, want) {
		errs = append(errs, field.Forbidden(spec,
			"spec is immutable after creation except resources.requests and "+
				"volumeAttributesClassName for bound claims"))
	}

	size, oldSize := c.Spec.Resources.Requests[corev1.ResourceStorage],
		old.Spec.Resources.Requests[corev1.ResourceStorage]
	// A request that could not be satisfied may be reduced, but volumes never shrink.
	if capacity := old.Status.Capacity[corev1.ResourceStorage]; size.Cmp(oldSize) < 0 &&
		size.Cmp(capacity) <= 0 {
		errs = append(errs, field.Forbidden(spec.Child("resources", "requests", "storage"),
			"field can not be less than status.capacity"))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(c.Spec.VolumeMode, old.Spec.VolumeMode,
		field.NewPath("volumeMode"))...)

	if old.Status.CurrentVolumeAttributesClassName != nil &&
		!equality.Semantic.DeepEqual(old.Spec.VolumeAttributesClassName,
			c.Spec.VolumeAttributesClassName) {
		if is := c.Spec.VolumeAttributesClassName; is == nil || *is == "" {
			errs = append(errs, field.Forbidden(spec.Child("volumeAttributesClassName"),
				"cannot be unset: the volume already has a class"))
		}
	}
	return errs
}

func validateClaimStatus(_ context.Context, c, _ *corev1.PersistentVolumeClaim) field.ErrorList {
	errs := requireVersion(c)
	if len(c.Spec.AccessModes) == 0 {
		errs = append(errs, field.Required(field.NewPath("Spec", "accessModes"), ""))
	}
	status := field.NewPath("status")
	for name, size := range c.Status.Capacity {
		errs = append(errs, quantities.ValidateNonnegativeQuantity(size,
			status.Child("capacity").Key(string(name)))...)
	}
	at := status.Child("allocatedResourceStatuses")
	for name, state := range c.Status.AllocatedResourceStatuses {
		errs = append(errs, validateClaimResource(name, at)...)
		if !claimResourceStatuses.Has(state) {
			errs = append(errs, field.NotSupported(at, name, sets.List(claimResourceStatuses)))
		}
	}
	at = status.Child("allocatedResources")
	for name, size := range c.Status.AllocatedResources {
		if bad := validateClaimResource(name, at); len(bad) > 0 {
			errs = append(errs, bad...)
			continue
		}
		errs = append(errs, quantities.ValidateNonnegativeQuantity(size, at.Key(string(name)))...)
	}
	return errs
}

// validateClaimResource validates the name of a resource in the status of a claim: storage, or a
// resource that a driver defines.
func validateClaimResource(name corev1.ResourceName, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, rules.Invalid(at, name, validation.IsQualifiedName(string(name)))...)
	if len(errs) == 0 && quantities.IsNativeResource(name) && name != corev1.ResourceStorage {
		errs = append(errs, field.NotSupported(at, name, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	return errs
}

func warnClaim(_ context.Context, c, _ *corev1.PersistentVolumeClaim) []string {
	var warnings []string
	if _, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		warnings = append(warnings, fmt.Sprintf("%s: deprecated since v1.8 in favour of storageClassName",
			field.NewPath("metadata", "annotations").Key(corev1.BetaStorageClassAnnotation)))
	}
	return append(warnings, claims.Warnings(field.NewPath("spec"), &c.Spec)...)
}
