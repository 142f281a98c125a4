package resource

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/kind"
)

// DeviceClasses declares deviceclasses.
func DeviceClasses() kind.Declaration {
	type T = *resourcev1.DeviceClass
	return &kind.Kind[T]{
		Plural:        "deviceclasses",
		Versions:      deviceClassVersions(),
		ReturnDeleted: true,
		ClusterScoped: true,
		Generation:    true,
		Validate: func(ctx context.Context, c T) field.ErrorList {
			errs := resourcev1.Validate_DeviceClassSpec(ctx, asCreate(), field.NewPath("spec"), &c.Spec, nil)
			return once(append(errs, validateClass(&c.Spec, nil)...))
		},
		ValidateUpdate: func(ctx context.Context, c, old T) field.ErrorList {
			errs := resourcev1.Validate_DeviceClassSpec(ctx, asUpdate(), field.NewPath("spec"), &c.Spec, &old.Spec)
			return once(append(errs, validateClass(&c.Spec, &old.Spec)...))
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{kind.NameColumn(), kind.AgeColumn()},
			Row:     func(c T) []any { return []any{c.Name, kind.Age(c)} },
		},
	}
}

func validateClass(spec, old *resourcev1.DeviceClassSpec) field.ErrorList {
	stored := sets.New[string]()
	if old != nil {
		for _, s := range old.Selectors {
			if s.CEL != nil {
				stored.Insert(s.CEL.Expression)
			}
		}
	}
	at := field.NewPath("spec")
	errs := validateSelectors(spec.Selectors, func(e string) bool { return stored.Has(e) }, at.Child("selectors"))
	for i := range spec.Config {
		errs = append(errs, validateConfiguration(&spec.Config[i].DeviceConfiguration, at.Child("config").Index(i))...)
	}
	return errs
}
