package storagemigration

import (
	"context"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/kind"
)

// StorageVersionMigrations declares storageversionmigrations (KEP-4192).
func StorageVersionMigrations() kind.Declaration {
	type T = *storagemigrationv1.StorageVersionMigration
	return &kind.Kind[T]{
		Plural:        "storageversionmigrations",
		Versions:      []kind.Version{kind.ServedAsSame[*storagemigrationv1beta1.StorageVersionMigration, T]()},
		ClusterScoped: true,
		Validate:      func(_ context.Context, m T) field.ErrorList { return validateResource(m.Spec.Resource) },
		ValidateUpdate: func(_ context.Context, m, old T) field.ErrorList {
			return append(validateResource(m.Spec.Resource), apivalidation.ValidateImmutableField(m.Spec, old.Spec, field.NewPath("spec"))...)
		},
		Status: &kind.Status[T]{
			Prepare:     func(_ context.Context, m, old T) { metav1.ResetObjectMetaForStatus(m, old) },
			ResetFields: []string{"metadata", "spec"},
			Validate: func(_ context.Context, m, old T) field.ErrorList {
				at := field.NewPath("status")
				errs := metavalidation.ValidateConditions(m.Status.Conditions, at.Child("conditions"))
				if old.Status.ResourceVersion != "" {
					errs = append(errs, apivalidation.ValidateImmutableField(m.Status.ResourceVersion, old.Status.ResourceVersion, at.Child("resourceVersion"))...)
				}
				return errs
			},
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Resource", Description: "Resource whose objects are rewritten."},
				kind.AgeColumn(),
			},
			Row: func(m T) []any {
				resource := metav1.GroupResource{Group: m.Spec.Resource.Group, Resource: m.Spec.Resource.Resource}
				return []any{m.Name, resource.String(), kind.Age(m)}
			},
		},
	}
}

func validateResource(r metav1.GroupResource) field.ErrorList {
	at := field.NewPath("spec", "resource")
	var errs field.ErrorList
	if r.Group != "" {
		for _, msg := range validation.IsDNS1123Subdomain(r.Group) {
			errs = append(errs, field.Invalid(at.Child("group"), r.Group, msg))
		}
	}
	if r.Resource == "" {
		return append(errs, field.Required(at.Child("resource"), ""))
	}
	for _, msg := range validation.IsDNS1035Label(r.Resource) {
		errs = append(errs, field.Invalid(at.Child("resource"), r.Resource, msg))
	}
	return errs
}
