package storage

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/nodeselectors"
	"github.com/kinproc/kinproc/chain/core/internal/rules/quantities"
	"github.com/kinproc/kinproc/chain/kind"
)

// CSIStorageCapacities declares csistoragecapacities.
func CSIStorageCapacities() *kind.Kind[*storagev1.CSIStorageCapacity] {
	return &kind.Kind[*storagev1.CSIStorageCapacity]{
		Plural: "csistoragecapacities",
		Validate: func(_ context.Context, c *storagev1.CSIStorageCapacity) field.ErrorList {
			return validateCapacity(c, metav1validation.LabelSelectorValidationOptions{})
		},
		ValidateUpdate: func(_ context.Context, c, old *storagev1.CSIStorageCapacity) field.ErrorList {
			errs := validateCapacity(c, metav1validation.LabelSelectorValidationOptions{
				AllowInvalidLabelValueInSelector: metav1validation.LabelSelectorHasInvalidLabelValue(
					old.NodeTopology),
			})
			errs = append(errs, apivalidation.ValidateImmutableField(c.NodeTopology, old.NodeTopology,
				field.NewPath("nodeTopology"))...)
			return append(errs, apivalidation.ValidateImmutableField(c.StorageClassName,
				old.StorageClassName, field.NewPath("storageClassName"))...)
		},
		Warnings: func(_ context.Context, c, _ *storagev1.CSIStorageCapacity) []string {
			return nodeselectors.LabelSelectorWarnings(c.NodeTopology, field.NewPath("nodeTopology"))
		},
		RequireResourceVersion: true,
		Quirks:                 kind.Quirks{NameOnUpdate: true},
	}
}

func validateCapacity(
	c *storagev1.CSIStorageCapacity, opts metav1validation.LabelSelectorValidationOptions,
) field.ErrorList {
	errs := metav1validation.ValidateLabelSelector(c.NodeTopology, opts, field.NewPath("nodeTopology"))
	errs = append(errs, rules.Invalid(field.NewPath("storageClassName"), c.StorageClassName,
		apivalidation.NameIsDNSSubdomain(c.StorageClassName, false))...)
	if c.Capacity != nil {
		errs = append(errs, quantities.ValidateNonnegativeQuantity(*c.Capacity,
			field.NewPath("capacity"))...)
	}
	return errs
}
