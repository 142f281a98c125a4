package storagemigration

import (
	"context"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/chain/kind"
)

// StorageVersionMigrations declares storageversionmigrations (KEP-4192). Kubernetes 1.37, which
// introduces v1, still stores them as v1beta1.
func StorageVersionMigrations() *kind.Kind[*storagemigrationv1beta1.StorageVersionMigration] {
	type T = *storagemigrationv1beta1.StorageVersionMigration
	return &kind.Kind[T]{
		Plural:        "storageversionmigrations",
		ClusterScoped: true,
		Enabled:       func() bool { return features.Enabled(features.StorageVersionMigrator) },
		Versions: []kind.Version{
			kind.ServedAsSame[*storagemigrationv1.StorageVersionMigration, T](),
		},
		Validate: func(_ context.Context, m T) field.ErrorList {
			return validateResource(m.Spec.Resource)
		},
		ValidateUpdate: func(_ context.Context, m, old T) field.ErrorList {
			return append(validateResource(m.Spec.Resource),
				apivalidation.ValidateImmutableField(m.Spec, old.Spec, field.NewPath("spec"))...)
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{
				// kube-apiserver's column has no format here
				{Name: "Name", Description: kind.NameColumn().Description},
				{Name: "Resource", Description: "Resource whose objects are rewritten."},
				{Name: "Status", Description: "Progress of the migration."},
			},
			Row: func(m T) []any {
				resource := metav1.GroupResource{
					Group:    m.Spec.Resource.Group,
					Resource: m.Spec.Resource.Resource,
				}
				return []any{m.Name, resource.String(), state(&m.Status)}
			},
		},
		Status: &kind.Status[T]{
			Prepare:     func(_ context.Context, m, old T) { metav1.ResetObjectMetaForStatus(m, old) },
			ResetFields: []string{"metadata", "spec"},
			Validate: func(_ context.Context, m, old T) field.ErrorList {
				return validateStatus(&m.Status, &old.Status)
			},
		},
		RequireResourceVersion: true,
		Quirks:                 kind.Quirks{NameOnUpdate: true},
	}
}

// state returns the type of the last condition that is true.
func state(s *storagemigrationv1beta1.StorageVersionMigrationStatus) string {
	state := "Unknown"
	for _, c := range s.Conditions {
		switch t := storagemigrationv1beta1.MigrationConditionType(c.Type); t {
		case storagemigrationv1beta1.MigrationRunning, storagemigrationv1beta1.MigrationSucceeded,
			storagemigrationv1beta1.MigrationFailed:
			if c.Status == metav1.ConditionTrue {
				state = c.Type
			}
		}
	}
	return state
}

func validateResource(r metav1.GroupResource) field.ErrorList {
	at := field.NewPath("spec", "resource")
	var errs field.ErrorList
	if r.Group != "" {
		errs = append(errs, rules.Invalid(at.Child("group"), r.Group,
			validation.IsDNS1123Subdomain(r.Group))...)
	}
	if r.Resource == "" {
		return append(errs, field.Required(at.Child("resource"), ""))
	}
	return append(errs, rules.Invalid(at.Child("resource"), r.Resource,
		validation.IsDNS1035Label(r.Resource))...)
}

// validateStatus lets a migration end once: a migration that has succeeded or failed stays so.
func validateStatus(s, old *storagemigrationv1beta1.StorageVersionMigrationStatus) field.ErrorList {
	at := field.NewPath("status")
	version, conditions := at.Child("resourceVersion"), at.Child("conditions")
	var errs field.ErrorList
	if _, err := resourceversion.CompareResourceVersion(s.ResourceVersion,
		s.ResourceVersion); s.ResourceVersion != "" && err != nil {
		errs = append(errs, field.Invalid(version, s.ResourceVersion,
			"must be a resource version, which is a positive number"))
	}
	if old.ResourceVersion != "" && s.ResourceVersion != old.ResourceVersion {
		errs = append(errs, field.Invalid(version, s.ResourceVersion, "is immutable once set"))
	}
	errs = append(errs, metavalidation.ValidateConditions(s.Conditions, conditions)...)
	is := func(
		s *storagemigrationv1beta1.StorageVersionMigrationStatus,
		t storagemigrationv1beta1.MigrationConditionType,
	) bool {
		return meta.IsStatusConditionTrue(s.Conditions, string(t))
	}
	succeeded, failed := is(s, storagemigrationv1beta1.MigrationSucceeded), is(s,
		storagemigrationv1beta1.MigrationFailed)
	for _, c := range []struct {
		wrong bool
		why   string
	}{
		{succeeded && failed, "a migration may not both succeed and fail"},
		{
			!succeeded && is(old, storagemigrationv1beta1.MigrationSucceeded),
			"Succeeded may not be removed once it is true",
		},
		{
			!failed && is(old, storagemigrationv1beta1.MigrationFailed),
			"Failed may not be removed once it is true",
		},
	} {
		if c.wrong {
			errs = append(errs, field.Invalid(conditions, field.OmitValueType{}, c.why))
		}
	}
	return errs
}
