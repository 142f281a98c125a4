package storage

import (
	"context"
	"fmt"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/chain/kind"
)

const (
	// Limits of the lifetime of the tokens that a driver requests for pods, in seconds.
	minTokenSeconds = 600
	maxTokenSeconds = 1 << 32
	// minUpdateSeconds is the minimum interval, in seconds, at which a driver's allocatable volumes
	// on a node are updated.
	minUpdateSeconds = 10
)

var (
	lifecycleModes  = sets.New(storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)
	fsGroupPolicies = sets.New(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy,
		storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy)
)

// CSIDrivers declares csidrivers.
func CSIDrivers() *kind.Kind[*storagev1.CSIDriver] {
	return &kind.Kind[*storagev1.CSIDriver]{
		Plural:        "csidrivers",
		ClusterScoped: true,
		Default:       defaultCSIDriver,
		PrepareCreate: func(_ context.Context, d *storagev1.CSIDriver) {
			dropDisabled(d, &storagev1.CSIDriver{})
		},
		PrepareUpdate: func(_ context.Context, d, old *storagev1.CSIDriver) {
			// Unlike for other kinds, the generation of a new driver is 0.
			dropDisabled(d, old)
			if !equality.Semantic.DeepEqual(d.Spec, old.Spec) {
				d.Generation = old.Generation + 1
			}
		},
		Validate:       validateCSIDriver,
		ValidateUpdate: validateCSIDriverUpdate,
		Table: kind.Table[*storagev1.CSIDriver]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{
					Name:        "AttachRequired",
					Type:        "boolean",
					Description: "Whether volumes are attached before they are mounted.",
				},
				{
					Name:        "PodInfoOnMount",
					Type:        "boolean",
					Description: "Whether the driver gets information about the pod on mount.",
				},
				{
					Name:        "StorageCapacity",
					Type:        "boolean",
					Description: "Whether the scheduler considers the driver's storage capacity.",
				},
				{Name: "TokenRequests", Description: "Audiences of the tokens that the driver gets."},
				{
					Name:        "RequiresRepublish",
					Type:        "boolean",
					Description: "Whether the driver is called periodically for mounted volumes.",
				},
				{Name: "Modes", Description: "Lifecycles of the driver's volumes."},
				kind.AgeColumn(),
			},
			Row: csiDriverRow,
		},
		Warnings: func(_ context.Context, d, old *storagev1.CSIDriver) []string {
			changed := old == nil ||
				!equality.Semantic.DeepEqual(d.Spec.TokenRequests, old.Spec.TokenRequests)
			if !changed || len(d.Spec.TokenRequests) == 0 ||
				d.Spec.ServiceAccountTokenInSecrets != nil ||
				!features.Enabled(features.CSIServiceAccountTokenSecrets) {
				return nil
			}
			return []string{
				"spec.serviceAccountTokenInSecrets: if unset, tokens are passed in the volume context, " +
					"which drivers may log; set it to true if the driver supports it",
			}
		},
		RequireResourceVersion: true,
		Quirks:                 kind.Quirks{ReturnDeleted: true},
	}
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	spec := &d.Spec
	setIfNil(&spec.AttachRequired, true)
	setIfNil(&spec.PodInfoOnMount, false)
	setIfNil(&spec.StorageCapacity, false)
	setIfNil(&spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	setIfNil(&spec.RequiresRepublish, false)
	setIfNil(&spec.SELinuxMount, false)
	if features.Enabled(features.VolumeLimitScaling) {
		setIfNil(&spec.PreventPodSchedulingIfMissing, false)
	}
	if len(spec.VolumeLifecycleModes) == 0 {
		spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

// dropDisabled clears the fields of features that are off, unless old uses them.
func dropDisabled(d, old *storagev1.CSIDriver) {
	spec, was := &d.Spec, &old.Spec
	features.DropField(features.MutableCSINodeAllocatableCount,
		&spec.NodeAllocatableUpdatePeriodSeconds, was.NodeAllocatableUpdatePeriodSeconds)
	features.DropField(features.CSIServiceAccountTokenSecrets, &spec.ServiceAccountTokenInSecrets,
		was.ServiceAccountTokenInSecrets)
	features.DropField(features.VolumeLimitScaling, &spec.PreventPodSchedulingIfMissing,
		was.PreventPodSchedulingIfMissing)
}

func setIfNil[T any](to **T, value T) {
	if *to == nil {
		*to = &value
	}
}

func csiDriverRow(d *storagev1.CSIDriver) []any {
	modes := make([]string, 0, len(d.Spec.VolumeLifecycleModes))
	for _, m := range d.Spec.VolumeLifecycleModes {
		modes = append(modes, string(m))
	}
	tokens := "<unset>"
	if d.Spec.TokenRequests != nil {
		audiences := make([]string, 0, len(d.Spec.TokenRequests))
		for _, t := range d.Spec.TokenRequests {
			audiences = append(audiences, t.Audience)
		}
		tokens = strings.Join(audiences, ",")
	}
	return []any{
		d.Name, d.Spec.AttachRequired == nil || *d.Spec.AttachRequired,
		ptr.Deref(d.Spec.PodInfoOnMount, false), ptr.Deref(d.Spec.StorageCapacity, false), tokens,
		ptr.Deref(d.Spec.RequiresRepublish, false), strings.Join(modes, ","), kind.Age(d),
	}
}

// validateCSIDriver checks a driver whose defaults are set.
func validateCSIDriver(_ context.Context, d *storagev1.CSIDriver) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if p := d.Spec.FSGroupPolicy; p != nil && !fsGroupPolicies.Has(*p) {
		errs = append(errs, field.NotSupported(spec.Child("fsGroupPolicy"), *p,
			sets.List(fsGroupPolicies)))
	}
	for _, m := range d.Spec.VolumeLifecycleModes {
		if !lifecycleModes.Has(m) {
			errs = append(errs, field.NotSupported(spec.Child("volumeLifecycleModes"), m,
				sets.List(lifecycleModes)))
		}
	}
	audiences := sets.New[string]()
	for i, t := range d.Spec.TokenRequests {
		at := spec.Child("tokenRequests").Index(i)
		if audiences.Has(t.Audience) {
			errs = append(errs, field.Duplicate(at.Child("audience"), t.Audience))
			continue
		}
		audiences.Insert(t.Audience)
		if s := t.ExpirationSeconds; s != nil && (*s < minTokenSeconds || *s > maxTokenSeconds) {
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *s,
				fmt.Sprintf("must be between %d and %d", minTokenSeconds, int64(maxTokenSeconds))))
		}
	}
	if s := d.Spec.NodeAllocatableUpdatePeriodSeconds; s != nil && *s < minUpdateSeconds {
		errs = append(errs, field.Invalid(spec.Child("nodeAllocatableUpdatePeriodSeconds"), *s,
			fmt.Sprintf("must be at least %d", minUpdateSeconds)))
	}
	if in := d.Spec.ServiceAccountTokenInSecrets; in != nil && len(d.Spec.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(spec.Child("serviceAccountTokenInSecrets"), *in,
			"may only be set with tokenRequests"))
	}
	return errs
}

func validateCSIDriverUpdate(ctx context.Context, d, old *storagev1.CSIDriver) field.ErrorList {
	errs := validateCSIDriver(ctx, d)
	spec := field.NewPath("spec")
	errs = append(errs, apivalidation.ValidateImmutableField(d.Spec.AttachRequired,
		old.Spec.AttachRequired, spec.Child("attachedRequired"))...)
	return append(errs, apivalidation.ValidateImmutableField(d.Spec.VolumeLifecycleModes,
		old.Spec.VolumeLifecycleModes, spec.Child("volumeLifecycleModes"))...)
}
