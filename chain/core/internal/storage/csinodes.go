package storage

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/volumesources"
	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/chain/kind"
)

// maxNodeID is the maximum length of a driver's ID for a node in bytes, as in the CSI
// specification.
const maxNodeID = 256

// CSINodes declares csinodes.
func CSINodes() *kind.Kind[*storagev1.CSINode] {
	return &kind.Kind[*storagev1.CSINode]{
		Plural:         "csinodes",
		ClusterScoped:  true,
		Validate:       validateCSINode,
		ValidateUpdate: validateCSINodeUpdate,
		Table: kind.Table[*storagev1.CSINode]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Drivers", Type: "integer", Description: "Number of drivers on the node."},
				kind.AgeColumn(),
			},
			Row: func(n *storagev1.CSINode) []any {
				return []any{n.Name, int64(len(n.Spec.Drivers)), kind.Age(n)}
			},
		},
		Status: &kind.Status[*storagev1.CSINode]{
			Prepare: func(_ context.Context, n, old *storagev1.CSINode) {
				metav1.ResetObjectMetaForStatus(n, old)
				if len(old.Status.StorageHealth) == 0 {
					// The feature CSIVolumeHealth (KEP-1432) is off.
					n.Status.StorageHealth = nil
				}
			},
			ResetFields: []string{"metadata", "spec"},
		},
		RequireResourceVersion: true,
		Quirks:                 kind.Quirks{NameOnUpdate: true, ReturnDeleted: true},
	}
}

func validateCSINode(_ context.Context, n *storagev1.CSINode) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, d := range n.Spec.Drivers {
		at := field.NewPath("spec", "drivers").Index(i)
		errs = append(errs, volumesources.ValidateCSIDriverName(d.Name, at.Child("name"))...)
		switch {
		case d.NodeID == "":
			errs = append(errs, field.Required(at.Child("nodeID"), "must be the driver's ID for the node"))
		case len(d.NodeID) > maxNodeID:
			errs = append(errs, field.Invalid(at.Child("nodeID"), d.NodeID,
				fmt.Sprintf("must have at most %d bytes", maxNodeID)))
		}
		if d.Allocatable != nil && d.Allocatable.Count != nil && *d.Allocatable.Count < 0 {
			errs = append(errs, field.Invalid(at.Child("allocatable", "count"), *d.Allocatable.Count,
				"must be greater than or equal to 0"))
		}
		if names.Has(d.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
		}
		names.Insert(d.Name)
		keys := sets.New[string]()
		for _, key := range d.TopologyKeys {
			if key == "" {
				errs = append(errs, field.Required(at, "topology keys must not be empty"))
			}
			if keys.Has(key) {
				errs = append(errs, field.Duplicate(at, key))
			}
			keys.Insert(key)
			errs = append(errs, rules.Invalid(at, key, validation.IsQualifiedName(key))...)
		}
	}
	return errs
}

// validateCSINodeUpdate makes drivers immutable except for their allocatable, if that may change. A
// driver may be removed and added again with other values.
func validateCSINodeUpdate(ctx context.Context, n, old *storagev1.CSINode) field.ErrorList {
	errs := validateCSINode(ctx, n)
	drivers := map[string]storagev1.CSINodeDriver{}
	for _, is := range n.Spec.Drivers {
		drivers[is.Name] = is
	}
	for _, was := range old.Spec.Drivers {
		is, ok := drivers[was.Name]
		if features.Enabled(features.MutableCSINodeAllocatableCount) {
			was.Allocatable = is.Allocatable
		}
		if ok && !equality.Semantic.DeepEqual(is, was) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "drivers"), is, "field is immutable"))
		}
	}
	return errs
}
