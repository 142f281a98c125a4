package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/nodeselectors"
	"github.com/kinproc/kinproc/chain/kind"
)

const (
	// defaultClassAnnotation marks the default class for claims without a class. The beta
	// annotation still counts.
	defaultClassAnnotation     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultClassAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
	// Limits of the number of a class's parameters, and of their total size in bytes.
	maxParameters     = 512
	maxParametersSize = 256 << 10
)

var (
	classReclaimPolicies = sets.New(corev1.PersistentVolumeReclaimDelete,
		corev1.PersistentVolumeReclaimRetain)
	bindingModes = sets.New(storagev1.VolumeBindingImmediate,
		storagev1.VolumeBindingWaitForFirstConsumer)
)

// StorageClasses declares storageclasses.
func StorageClasses() *kind.Kind[*storagev1.StorageClass] {
	return &kind.Kind[*storagev1.StorageClass]{
		Plural:        "storageclasses",
		ShortNames:    []string{"sc"},
		ClusterScoped: true,
		Default: func(c *storagev1.StorageClass) {
			setIfNil(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
			setIfNil(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
		},
		Validate:       validateStorageClass,
		ValidateUpdate: validateStorageClassUpdate,
		Table: kind.Table[*storagev1.StorageClass]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Provisioner", Description: "Driver that provisions the volumes of the class."},
				{Name: "ReclaimPolicy", Description: "What happens to a volume after its claim is deleted."},
				{Name: "VolumeBindingMode", Description: "When volumes are provisioned and bound to claims."},
				{Name: "AllowVolumeExpansion", Description: "Whether volumes can grow."},
				kind.AgeColumn(),
			},
			Row: storageClassRow,
		},
		Warnings: warnStorageClass,
		Quirks:   kind.Quirks{NameOnUpdate: true, ReturnDeleted: true},
	}
}

func storageClassRow(c *storagev1.StorageClass) []any {
	name := c.Name
	if c.Annotations[defaultClassAnnotation] == "true" ||
		c.Annotations[betaDefaultClassAnnotation] == "true" {
		name += " (default)"
	}
	reclaim, binding := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingImmediate
	if c.ReclaimPolicy != nil {
		reclaim = *c.ReclaimPolicy
	}
	if c.VolumeBindingMode != nil {
		binding = *c.VolumeBindingMode
	}
	return []any{
		name, c.Provisioner, string(reclaim), string(binding), ptr.Deref(c.AllowVolumeExpansion, false),
		kind.Age(c),
	}
}

func validateStorageClass(_ context.Context, c *storagev1.StorageClass) field.ErrorList {
	errs := validateProvisioner(c.Provisioner, field.NewPath("provisioner"))
	errs = append(errs, validateParameters(c.Parameters, field.NewPath("parameters"))...)
	if p := c.ReclaimPolicy; p != nil && *p != "" && !classReclaimPolicies.Has(*p) {
		errs = append(errs, field.NotSupported(field.NewPath("reclaimPolicy"), *p,
			sets.List(classReclaimPolicies)))
	}
	if m := c.VolumeBindingMode; m == nil {
		errs = append(errs, field.Required(field.NewPath("volumeBindingMode"),
			"must say when volumes are bound to claims"))
	} else if !bindingModes.Has(*m) {
		errs = append(errs, field.NotSupported(field.NewPath("volumeBindingMode"), *m,
			sets.List(bindingModes)))
	}
	return append(errs, validateTopologies(c.AllowedTopologies, field.NewPath("allowedTopologies"))...)
}

// validateProvisioner checks the name of a driver that provisions volumes or modifies their
// attributes.
func validateProvisioner(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "must name a driver")}
	}
	return rules.Invalid(at, name, validation.IsQualifiedName(strings.ToLower(name)))
}

func validateParameters(parameters map[string]string, at *field.Path) field.ErrorList {
	if len(parameters) > maxParameters {
		return field.ErrorList{field.TooLong(at, "" /* not the parameters */, maxParameters)}
	}
	var errs field.ErrorList
	size := 0
	for key, value := range parameters {
		if key == "" {
			errs = append(errs, field.Invalid(at, key, "field can not be empty."))
		}
		size += len(key) + len(value)
	}
	if size > maxParametersSize {
		errs = append(errs, field.TooLong(at, "" /* not the parameters */, maxParametersSize))
	}
	return errs
}

func validateTopologies(terms []corev1.TopologySelectorTerm, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	// Start with an empty term, so that a term that selects everything counts as a duplicate.
	seen := sets.New("{}")
	for i, term := range terms {
		path := at.Index(i).Child("matchLabelExpressions")
		selected := map[string]sets.Set[string]{}
		for j, r := range term.MatchLabelExpressions {
			if _, dup := selected[r.Key]; dup {
				errs = append(errs, field.Duplicate(path.Index(j).Child("key"), r.Key))
			}
			selected[r.Key] = sets.New[string]()
			if len(r.Values) == 0 {
				errs = append(errs, field.Required(path.Index(j).Child("values"),
					"at least one value is required"))
			}
			for k, value := range r.Values {
				if selected[r.Key].Has(value) {
					errs = append(errs, field.Duplicate(path.Index(j).Child("values").Index(k), value))
				}
				selected[r.Key].Insert(value)
			}
			errs = append(errs, metav1validation.ValidateLabelName(r.Key, path.Index(j).Child("key"))...)
		}
		key, err := json.Marshal(selected) // in which keys and values are sorted
		if err != nil {
			errs = append(errs, field.InternalError(path, err))
		}
		if seen.Has(string(key)) {
			errs = append(errs, field.Duplicate(path, ""))
		}
		seen.Insert(string(key))
	}
	return errs
}

func validateStorageClassUpdate(
	ctx context.Context, c, old *storagev1.StorageClass,
) field.ErrorList {
	errs := validateStorageClass(ctx, c)
	for _, f := range []struct {
		name       string
		value, old any
	}{
		{"parameters", c.Parameters, old.Parameters},
		{"provisioner", c.Provisioner, old.Provisioner},
		{"reclaimPolicy", c.ReclaimPolicy, old.ReclaimPolicy},
		{"volumeBindingMode", c.VolumeBindingMode, old.VolumeBindingMode},
	} {
		errs = append(errs, apivalidation.ValidateImmutableField(f.value, f.old,
			field.NewPath(f.name))...)
	}
	return errs
}

func warnStorageClass(_ context.Context, c, _ *storagev1.StorageClass) []string {
	var warnings []string
	for i, term := range c.AllowedTopologies {
		for j, r := range term.MatchLabelExpressions {
			if advice, ok := nodeselectors.DeprecatedLabel(r.Key); ok {
				at := field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).
					Child("key")
				warnings = append(warnings, fmt.Sprintf("%s: %s: %s", at, r.Key, advice))
			}
		}
	}
	return warnings
}
