package apiserverinternal

import (
	"context"
	"slices"
	"strings"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/kind"
)

// StorageVersions declares storageversions. Their names have the form <group>.<resource>.
func StorageVersions() *kind.Kind[*apiserverinternalv1alpha1.StorageVersion] {
	type T = *apiserverinternalv1alpha1.StorageVersion
	return &kind.Kind[T]{
		Plural:        "storageversions",
		ClusterScoped: true,
		Name:          validateName,
		Validate:      func(_ context.Context, v T) field.ErrorList { return kind.ValidateFinalizers(v) },
		// The spec is empty.
		ValidateUpdate: func(context.Context, T, T) field.ErrorList { return nil },
		Table: kind.Table[T]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{
					Name:        "CommonEncodingVersion",
					Description: "Version in which all servers store the resource.",
				},
				{Name: "StorageVersions", Description: "Versions in which each server stores the resource."},
				kind.AgeColumn(),
			},
			Row: func(v T) []any {
				common, each := "<unset>", "<unset>"
				if c := v.Status.CommonEncodingVersion; c != nil {
					common = *c
				}
				var servers []string
				for _, s := range v.Status.StorageVersions {
					servers = append(servers, s.APIServerID+"="+s.EncodingVersion)
				}
				if len(servers) > 0 {
					each = strings.Join(servers, ",")
				}
				return []any{v.Name, common, each, kind.Age(v)}
			},
		},
		Status: &kind.Status[T]{
			Prepare:     func(_ context.Context, v, old T) { metav1.ResetObjectMetaForStatus(v, old) },
			ResetFields: []string{"metadata", "spec"},
			Validate: func(_ context.Context, v, _ T) field.ErrorList {
				return validateStatus(&v.Status, field.NewPath("status"))
			},
		},
		RequireResourceVersion: true,
		Quirks: kind.Quirks{
			AnyFinalizers: true, // on update; creation validates them
		},
	}
}

func validateName(name string, _ bool) []string {
	i := strings.LastIndex(name, ".")
	if i < 0 {
		return []string{"must have the form <group>.<resource>"}
	}
	return append(validation.IsDNS1123Subdomain(name[:i]), validation.IsDNS1035Label(name[i+1:])...)
}

func validateStatus(
	s *apiserverinternalv1alpha1.StorageVersionStatus, at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, v := range s.StorageVersions {
		at := at.Child("storageVersions").Index(i)
		if seen[v.APIServerID] {
			errs = append(errs, field.Duplicate(at.Child("apiServerID"), v.APIServerID))
		}
		seen[v.APIServerID] = true
		errs = append(errs, validateServer(&v, at)...)
	}
	errs = append(errs, validateCommon(s, at.Child("commonEncodingVersion"))...)
	types := map[apiserverinternalv1alpha1.StorageVersionConditionType]bool{}
	for i, c := range s.Conditions {
		at := at.Index(i) // as in kube-apiserver, not below conditions
		if types[c.Type] {
			errs = append(errs, field.Invalid(at.Child("type"), c.Type, "must be unique"))
		}
		types[c.Type] = true
		for name, value := range map[string]string{"type": string(c.Type), "status": string(c.Status)} {
			errs = append(errs, rules.Invalid(at.Child(name), value,
				validation.IsQualifiedName(value))...)
		}
		for name, value := range map[string]string{"reason": c.Reason, "message": c.Message} {
			if value == "" {
				errs = append(errs, field.Required(at.Child(name), ""))
			}
		}
	}
	return errs
}

func validateServer(
	v *apiserverinternalv1alpha1.ServerStorageVersion, at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, rules.Invalid(at.Child("apiServerID"), v.APIServerID,
		apivalidation.NameIsDNSSubdomain(v.APIServerID, false))...)
	if !isAPIVersion(v.EncodingVersion) {
		errs = append(errs, field.Invalid(at.Child("encodingVersion"), v.EncodingVersion,
			"must be a valid API version"))
	}
	for i, version := range v.DecodableVersions {
		if !isAPIVersion(version) {
			errs = append(errs, field.Invalid(at.Child("decodableVersions").Index(i), version,
				"must be a valid API version"))
		}
	}
	decodable := sets.New(v.DecodableVersions...)
	if !decodable.Has(v.EncodingVersion) {
		errs = append(errs, field.Invalid(at.Child("decodableVersions"), v.DecodableVersions,
			"must contain encodingVersion"))
	}
	for i, version := range v.ServedVersions {
		at := at.Child("servedVersions").Index(i)
		if !isAPIVersion(version) {
			errs = append(errs, field.Invalid(at, version, "must be a valid API version"))
		}
		if !decodable.Has(version) {
			errs = append(errs, field.Invalid(at, version, "must be one of decodableVersions"))
		}
	}
	return errs
}

// validateCommon requires commonEncodingVersion to be the version in which all servers store the
// resource, or unset if their versions differ.
func validateCommon(
	s *apiserverinternalv1alpha1.StorageVersionStatus, at *field.Path,
) field.ErrorList {
	var common *string // nil if there are no servers or their versions differ
	if len(s.StorageVersions) > 0 {
		first := s.StorageVersions[0].EncodingVersion
		if !slices.ContainsFunc(s.StorageVersions,
			func(v apiserverinternalv1alpha1.ServerStorageVersion) bool {
				return v.EncodingVersion != first
			}) {
			common = &first
		}
	}
	switch said := s.CommonEncodingVersion; {
	case said == nil && common != nil:
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "must be "+*common)}
	case said != nil && (common == nil || *said != *common):
		return field.ErrorList{
			field.Invalid(at, *said, "must be the encodingVersion of all servers, or unset if they differ"),
		}
	}
	return nil
}

// isAPIVersion reports whether s is a version, optionally preceded by a group.
func isAPIVersion(s string) bool {
	group, version, found := strings.Cut(s, "/")
	if !found {
		group, version = "", s
	}
	return (!found || validation.IsDNS1123Subdomain(group) == nil) &&
		validation.IsDNS1035Label(version) == nil
}
