package resource

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/kind"
)

// ResourceClaimTemplates declares resourceclaimtemplates.
func ResourceClaimTemplates(labels NamespaceLabels) kind.Declaration {
	type T = *resourcev1.ResourceClaimTemplate
	at := field.NewPath("spec")
	validate := func(t T, stored bool) field.ErrorList {
		errs := apivalidation.ValidateAnnotations(t.Spec.Annotations, at.Child("metadata", "annotations"))
		errs = append(errs, metavalidation.ValidateLabels(t.Spec.Labels, at.Child("metadata", "labels"))...)
		return append(errs, validateDevices(&t.Spec.Spec.Devices, stored, at.Child("spec", "devices"))...)
	}
	return &kind.Kind[T]{
		Plural:        "resourceclaimtemplates",
		Versions:      claimTemplateVersions(),
		ReturnDeleted: true,
		Default:       func(t T) { defaultDevices(&t.Spec.Spec.Devices) },
		Validate: func(ctx context.Context, t T) field.ErrorList {
			errs := labels.adminAccess(ctx, t.Namespace, &t.Spec.Spec.Devices, at.Child("spec", "devices"))
			errs = append(errs, resourcev1.Validate_ResourceClaimTemplateSpec(ctx, asCreate(), at, &t.Spec, nil)...)
			return once(append(errs, validate(t, false)...))
		},
		ValidateUpdate: func(ctx context.Context, t, old T) field.ErrorList {
			errs := apivalidation.ValidateImmutableField(t.Spec, old.Spec, at)
			errs = append(errs, resourcev1.Validate_ResourceClaimTemplateSpec(ctx, asUpdate(), at, &t.Spec, &old.Spec)...)
			return once(append(errs, validate(t, true)...))
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{kind.NameColumn(), kind.AgeColumn()},
			Row:     func(t T) []any { return []any{t.Name, kind.Age(t)} },
		},
	}
}
