package resource

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules/workloads"
	"github.com/kinproc/kinproc/chain/kind"
)

// ResourceClaimTemplates declares resourceclaimtemplates.
func ResourceClaimTemplates(labels NamespaceLabels) *kind.Kind[*resourcev1.ResourceClaimTemplate] {
	type T = *resourcev1.ResourceClaimTemplate
	at := field.NewPath("spec")
	validate := func(ctx context.Context, t T) field.ErrorList {
		errs := workloads.ValidateTemplateMetadata(&t.Spec.ObjectMeta, at.Child("metadata"))
		errs = append(errs, validateDevices(&t.Spec.Spec.Devices, at.Child("spec", "devices"))...)
		return together(ctx, errs,
			resourcev1.Validate_ResourceClaimTemplateSpec(ctx, asCreate(), at, &t.Spec, nil))
	}
	return &kind.Kind[T]{
		Plural:        "resourceclaimtemplates",
		Versions:      claimTemplateVersions(),
		Default:       func(t T) { defaultDevices(&t.Spec.Spec.Devices, false) },
		PrepareCreate: func(_ context.Context, t T) { prepareClaimSpec(&t.Spec.Spec, nil) },
		PrepareUpdate: func(_ context.Context, t, old T) {
			prepareClaimSpec(&t.Spec.Spec, &old.Spec.Spec)
		},
		Validate: func(ctx context.Context, t T) field.ErrorList {
			return append(labels.adminAccess(ctx, t.Namespace, &t.Spec.Spec.Devices), validate(ctx, t)...)
		},
		ValidateUpdate: func(ctx context.Context, t, old T) field.ErrorList {
			return append(validate(ctx, t), apivalidation.ValidateImmutableField(t.Spec, old.Spec, at)...)
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{kind.NameColumn(), kind.AgeColumn()},
			Row:     func(t T) []any { return []any{t.Name, kind.Age(t)} },
		},
		Quirks: kind.Quirks{NameOnUpdate: true, ReturnDeleted: true},
	}
}
