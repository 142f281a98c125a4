package storage

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind"
)

// VolumeAttributesClasses declares volumeattributesclasses.
func VolumeAttributesClasses() *kind.Kind[*storagev1.VolumeAttributesClass] {
	return &kind.Kind[*storagev1.VolumeAttributesClass]{
		Plural:        "volumeattributesclasses",
		ShortNames:    []string{"vac"},
		ClusterScoped: true,
		Versions: []kind.Version{
			kind.ServedAsSame[*storagev1beta1.VolumeAttributesClass, *storagev1.VolumeAttributesClass](),
		},
		Validate: validateAttributesClass,
		ValidateUpdate: func(
			ctx context.Context, c, old *storagev1.VolumeAttributesClass,
		) field.ErrorList {
			errs := validateAttributesClass(ctx, c)
			if c.DriverName != old.DriverName {
				errs = append(errs, field.Forbidden(field.NewPath("driverName"), "may not be changed"))
			}
			if !equality.Semantic.DeepEqual(c.Parameters, old.Parameters) {
				errs = append(errs, field.Forbidden(field.NewPath("parameters"),
					"updates to parameters are forbidden."))
			}
			return errs
		},
		Table: kind.Table[*storagev1.VolumeAttributesClass]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "DriverName", Description: "The driver that modifies the volumes."},
				kind.AgeColumn(),
			},
			Row: func(c *storagev1.VolumeAttributesClass) []any {
				return []any{c.Name, c.DriverName, kind.Age(c)}
			},
		},
		Quirks: kind.Quirks{NameOnUpdate: true, ReturnDeleted: true},
	}
}

func validateAttributesClass(
	_ context.Context, c *storagev1.VolumeAttributesClass,
) field.ErrorList {
	errs := validateProvisioner(c.DriverName, field.NewPath("driverName"))
	if len(c.Parameters) == 0 {
		errs = append(errs, field.Required(field.NewPath("parameters"),
			"at least one parameter is required"))
	}
	return append(errs, validateParameters(c.Parameters, field.NewPath("parameters"))...)
}
