package resource

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules/quantities"
	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/chain/kind"
)

// DeviceClasses declares deviceclasses.
func DeviceClasses() *kind.Kind[*resourcev1.DeviceClass] {
	type T = *resourcev1.DeviceClass
	return &kind.Kind[T]{
		Plural:        "deviceclasses",
		ClusterScoped: true,
		Versions:      deviceClassVersions(),
		Name:          kind.GeneratedName,
		PrepareCreate: func(_ context.Context, c T) {
			features.DropField(features.DRAExtendedResource, &c.Spec.ExtendedResourceName, nil)
		},
		PrepareUpdate: func(_ context.Context, c, old T) {
			features.DropField(features.DRAExtendedResource, &c.Spec.ExtendedResourceName,
				old.Spec.ExtendedResourceName)
		},
		Validate: func(ctx context.Context, c T) field.ErrorList {
			generated := resourcev1.Validate_DeviceClassSpec(ctx, asCreate(), field.NewPath("spec"),
				&c.Spec, nil)
			return together(ctx, validateClass(&c.Spec, nil), generated)
		},
		ValidateUpdate: func(ctx context.Context, c, old T) field.ErrorList {
			generated := resourcev1.Validate_DeviceClassSpec(ctx, asUpdate(), field.NewPath("spec"),
				&c.Spec, &old.Spec)
			return together(ctx, validateClass(&c.Spec, &old.Spec), generated)
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{kind.NameColumn(), kind.AgeColumn()},
			Row:     func(c T) []any { return []any{c.Name, kind.Age(c)} },
		},
		Generation: true,
		Quirks:     kind.Quirks{ReturnDeleted: true},
	}
}

// validateClass checks spec; old is nil for a new class. A list of selectors or configurations that
// is unchanged counts as stored.
func validateClass(spec, old *resourcev1.DeviceClassSpec) field.ErrorList {
	at := field.NewPath("spec")
	sameSelectors := old != nil && equality.Semantic.DeepEqual(spec.Selectors, old.Selectors)
	sameConfig := old != nil && equality.Semantic.DeepEqual(spec.Config, old.Config)
	errs := validateSelectors(spec.Selectors, sameSelectors, at.Child("selectors"))
	errs = append(errs, each(spec.Config, resourcev1.DeviceConfigMaxSize, at.Child("config"),
		func(c *resourcev1.DeviceClassConfiguration, at *field.Path) field.ErrorList {
			return validateConfiguration(&c.DeviceConfiguration, sameConfig, at)
		})...)
	if name := spec.ExtendedResourceName; name != nil &&
		!quantities.IsExtendedResource(corev1.ResourceName(*name)) {
		errs = append(errs, field.Invalid(at.Child("extendedResourceName"), *name,
			"must be the name of an extended resource"))
	}
	return errs
}
