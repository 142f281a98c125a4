package claims

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/quantities"
)

const claimKind = "PersistentVolumeClaim"

var accessModes = sets.New(corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany,
	corev1.ReadWriteOncePod)

// Options relax the validation of a claim's spec for objects stored under looser rules. The zero
// value is strict and is used for new objects.
type Options struct {
	// AllowInvalidSelector allows invalid label values in the selector.
	AllowInvalidSelector bool
	// AllowInvalidSourceGroup allows invalid API groups in data sources.
	AllowInvalidSourceGroup bool
}

// OptionsFor returns the options for an update of old. old is nil on create.
func OptionsFor(old *corev1.PersistentVolumeClaimSpec) Options {
	if old == nil {
		return Options{}
	}
	return Options{
		AllowInvalidSelector: metav1validation.LabelSelectorHasInvalidLabelValue(old.Selector),
		AllowInvalidSourceGroup: old.DataSource != nil && old.DataSource.APIGroup != nil ||
			old.DataSourceRef != nil && old.DataSourceRef.APIGroup != nil,
	}
}

// DefaultSpec sets the defaults of the spec of a claim or a claim template.
func DefaultSpec(spec *corev1.PersistentVolumeClaimSpec) {
	if spec.VolumeMode == nil {
		spec.VolumeMode = new(corev1.PersistentVolumeFilesystem)
	}
	quantities.RoundUp(spec.Resources.Limits, spec.Resources.Requests)
}

// PrepareSpec normalizes the data sources before validation (KEP-1495). Unless old has data
// sources, it drops references to other namespaces (an alpha feature) and, for compatibility with
// old clients, any dataSource that is neither a claim nor a snapshot. Then it calls
// [MirrorDataSource]. old is nil on create.
func PrepareSpec(spec, old *corev1.PersistentVolumeClaimSpec) {
	hadRef := old != nil && old.DataSourceRef != nil
	hadSource := old != nil && old.DataSource != nil
	if ref := spec.DataSourceRef; ref != nil && ptr.Deref(ref.Namespace, "") != "" && !hadRef {
		spec.DataSourceRef = nil
	}
	if !hadRef && !hadSource && spec.DataSourceRef == nil && !isClaimOrSnapshot(spec.DataSource) {
		spec.DataSource = nil
	}
	MirrorDataSource(spec)
}

// MirrorDataSource copies dataSource to dataSourceRef, or back, if only one of them is set. A
// dataSourceRef with a namespace is not copied.
func MirrorDataSource(spec *corev1.PersistentVolumeClaimSpec) {
	source, ref := spec.DataSource, spec.DataSourceRef
	switch {
	case source != nil && ref == nil:
		spec.DataSourceRef = &corev1.TypedObjectReference{
			APIGroup: source.APIGroup,
			Kind:     source.Kind,
			Name:     source.Name,
		}
	case ref != nil && source == nil && ptr.Deref(ref.Namespace, "") == "":
		spec.DataSource = &corev1.TypedLocalObjectReference{
			APIGroup: ref.APIGroup,
			Kind:     ref.Kind,
			Name:     ref.Name,
		}
	}
}

func isClaimOrSnapshot(source *corev1.TypedLocalObjectReference) bool {
	if source == nil {
		return false
	}
	group := ptr.Deref(source.APIGroup, "")
	return source.Kind == claimKind && group == "" ||
		source.Kind == "VolumeSnapshot" && group == "snapshot.storage.k8s.io"
}

// ValidateSpec validates the spec of a claim or a claim template at path.
func ValidateSpec(
	spec *corev1.PersistentVolumeClaimSpec, path *field.Path, opts Options,
) field.ErrorList {
	errs := ValidateAccessModes(spec.AccessModes, path.Child("accessModes"))
	if spec.Selector != nil {
		labelOpts := metav1validation.LabelSelectorValidationOptions{
			AllowInvalidLabelValueInSelector: opts.AllowInvalidSelector,
		}
		errs = append(errs, metav1validation.ValidateLabelSelector(spec.Selector, labelOpts,
			path.Child("selector"))...)
	}
	sizePath := path.Child("resources").Key(string(corev1.ResourceStorage))
	if size, ok := spec.Resources.Requests[corev1.ResourceStorage]; !ok {
		errs = append(errs, field.Required(sizePath, "must specify the requested storage size"))
	} else {
		errs = append(errs, quantities.ValidatePositiveQuantity(size, sizePath)...)
	}
	if name := ptr.Deref(spec.StorageClassName, ""); name != "" {
		errs = append(errs, validateClassName(name, path.Child("storageClassName"))...)
	}
	errs = append(errs, ValidateVolumeMode(spec.VolumeMode, path.Child("volumeMode"))...)

	if source := spec.DataSource; source != nil {
		errs = append(errs, validateDataSource(source.APIGroup, source.Kind, source.Name,
			path.Child("dataSource"), opts)...)
	}
	if ref := spec.DataSourceRef; ref != nil {
		errs = append(errs, validateDataSource(ref.APIGroup, ref.Kind, ref.Name,
			path.Child("dataSourceRef"), opts)...)
		if namespace := ptr.Deref(ref.Namespace, ""); namespace != "" {
			errs = append(errs, rules.Invalid(path.Child("dataSourceRef", "namespace"), namespace,
				apivalidation.ValidateNamespaceName(namespace, false))...)
		}
	}
	if source, ref := spec.DataSource, spec.DataSourceRef; source != nil && ref != nil {
		if ptr.Deref(ref.Namespace, "") != "" {
			errs = append(errs, field.Invalid(path, path.Child("dataSource"),
				"may not be set when dataSourceRef specifies a namespace"))
		} else if !equality.Semantic.DeepEqual(source.APIGroup, ref.APIGroup) ||
			source.Kind != ref.Kind || source.Name != ref.Name {
			errs = append(errs, field.Invalid(path, path.Child("dataSource"), "must match dataSourceRef"))
		}
	}
	if name := ptr.Deref(spec.VolumeAttributesClassName, ""); name != "" {
		errs = append(errs, validateClassName(name, path.Child("volumeAttributesClassName"))...)
	}
	return errs
}

// ValidateAccessModes validates the access modes of a claim or a volume.
func ValidateAccessModes(
	modes []corev1.PersistentVolumeAccessMode, path *field.Path,
) field.ErrorList {
	if len(modes) == 0 {
		return field.ErrorList{field.Required(path, "at least 1 access mode is required")}
	}
	var errs field.ErrorList
	for _, mode := range modes {
		if !accessModes.Has(mode) {
			errs = append(errs, field.NotSupported(path, mode, sets.List(accessModes)))
		}
	}
	oncePod := func(m corev1.PersistentVolumeAccessMode) bool { return m == corev1.ReadWriteOncePod }
	others := slices.ContainsFunc(modes, func(m corev1.PersistentVolumeAccessMode) bool {
		return accessModes.Has(m) && !oncePod(m)
	})
	if others && slices.ContainsFunc(modes, oncePod) {
		errs = append(errs, field.Forbidden(path,
			"ReadWriteOncePod may not be combined with other access modes"))
	}
	return errs
}

// ValidateVolumeMode validates the volume mode of a claim or a volume. The mode may be unset.
func ValidateVolumeMode(mode *corev1.PersistentVolumeMode, path *field.Path) field.ErrorList {
	if mode == nil || *mode == corev1.PersistentVolumeBlock ||
		*mode == corev1.PersistentVolumeFilesystem {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, *mode, []corev1.PersistentVolumeMode{
		corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem,
	})}
}

func validateDataSource(
	group *string, kind, name string, path *field.Path, opts Options,
) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(path.Child("name"),
			"must specify the name of the data source"))
	}
	if kind == "" {
		errs = append(errs, field.Required(path.Child("kind"),
			"must specify the kind of the data source"))
	}
	switch g := ptr.Deref(group, ""); {
	case g == "":
		if kind != claimKind {
			errs = append(errs, field.Invalid(path, kind,
				"must be PersistentVolumeClaim when apiGroup is empty"))
		}
	case !opts.AllowInvalidSourceGroup:
		errs = append(errs, rules.Invalid(path.Child("apiGroup"), g,
			validation.IsDNS1123Subdomain(g))...)
	}
	return errs
}

// Warnings returns warnings about sizes that are not a whole number of bytes.
func Warnings(path *field.Path, spec *corev1.PersistentVolumeClaimSpec) []string {
	var warnings []string
	check := func(list corev1.ResourceList, child string) {
		size := list[corev1.ResourceStorage]
		if size.MilliValue()%1000 != 0 {
			warnings = append(warnings, fmt.Sprintf("%s: %s is not a whole number of bytes",
				path.Child("resources", child).Key(string(corev1.ResourceStorage)), size.String()))
		}
	}
	check(spec.Resources.Requests, "requests")
	check(spec.Resources.Limits, "limits")
	return warnings
}

func validateClassName(name string, path *field.Path) field.ErrorList {
	return rules.Invalid(path, name, apivalidation.NameIsDNSSubdomain(name, false))
}
