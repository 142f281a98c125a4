package resource

import (
	"context"
	"time"

	"github.com/blang/semver/v4"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/kind"
	"github.com/kinproc/kinproc/chain/core/rules"
)

// ResourceSlices declares resourceslices.
func ResourceSlices() kind.Declaration {
	type T = *resourcev1.ResourceSlice
	at := field.NewPath("spec")
	nodeName := func(s T) string {
		if s.Spec.NodeName == nil {
			return ""
		}
		return *s.Spec.NodeName
	}
	return &kind.Kind[T]{
		Plural:        "resourceslices",
		Versions:      sliceVersions(),
		ReturnDeleted: true,
		ClusterScoped: true,
		Generation:    true,
		Default:       defaultSlice,
		Validate: func(ctx context.Context, s T) field.ErrorList {
			errs := resourcev1.Validate_ResourceSliceSpec(ctx, asCreate(), at, &s.Spec, nil)
			return once(append(errs, validateSlice(&s.Spec)...))
		},
		ValidateUpdate: func(ctx context.Context, s, old T) field.ErrorList {
			errs := apivalidation.ValidateImmutableField(s.Spec.Driver, old.Spec.Driver, at.Child("driver"))
			errs = append(errs, apivalidation.ValidateImmutableField(s.Spec.Pool.Name, old.Spec.Pool.Name, at.Child("pool", "name"))...)
			errs = append(errs, apivalidation.ValidateImmutableField(s.Spec.NodeName, old.Spec.NodeName, at.Child("nodeName"))...)
			errs = append(errs, resourcev1.Validate_ResourceSliceSpec(ctx, asUpdate(), at, &s.Spec, &old.Spec)...)
			return once(append(errs, validateSlice(&s.Spec)...))
		},
		Fields: map[string]func(T) string{
			resourcev1.ResourceSliceSelectorNodeName: nodeName,
			resourcev1.ResourceSliceSelectorDriver:   func(s T) string { return s.Spec.Driver },
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Node", Description: "Node that has the devices."},
				{Name: "Driver", Description: "Driver of the devices."},
				{Name: "Pool", Description: "Pool that the devices belong to."},
				kind.AgeColumn(),
			},
			Row: func(s T) []any { return []any{s.Name, nodeName(s), s.Spec.Driver, s.Spec.Pool.Name, kind.Age(s)} },
		},
	}
}

func defaultSlice(s *resourcev1.ResourceSlice) {
	for i := range s.Spec.Devices {
		for j := range s.Spec.Devices[i].Taints {
			if t := &s.Spec.Devices[i].Taints[j]; t.TimeAdded == nil {
				t.TimeAdded = &metav1.Time{Time: time.Now().Truncate(time.Second)}
			}
		}
	}
}

func validateSlice(s *resourcev1.ResourceSliceSpec) field.ErrorList {
	at := field.NewPath("spec")
	errs := driverName(s.Driver, at.Child("driver"))
	errs = append(errs, poolName(s.Pool.Name, at.Child("pool", "name"))...)
	if s.Pool.ResourceSliceCount <= 0 {
		errs = append(errs, field.Invalid(at.Child("pool", "resourceSliceCount"), s.Pool.ResourceSliceCount, "must be greater than zero"))
	}
	if s.Pool.Generation < 0 {
		errs = append(errs, field.Invalid(at.Child("pool", "generation"), s.Pool.Generation, "must not be negative"))
	}

	count, more := validateNodes(s.NodeName, s.NodeSelector, s.AllNodes, at)
	errs = append(errs, more...)
	perDevice := s.PerDeviceNodeSelection != nil
	if perDevice {
		count++
		errs = append(errs, onlyTrue(*s.PerDeviceNodeSelection, at.Child("perDeviceNodeSelection"))...)
	}
	const oneOf = "of nodeName, nodeSelector, allNodes and perDeviceNodeSelection give exactly one"
	switch {
	case count == 0:
		errs = append(errs, field.Required(at, oneOf))
	case count > 1:
		errs = append(errs, field.Invalid(at, "<value omitted>", oneOf))
	}

	limit := resourcev1.ResourceSliceMaxDevices
	names := sets.New[string]()
	for i := range s.Devices {
		d := &s.Devices[i]
		if len(d.Taints) > 0 || len(d.ConsumesCounters) > 0 {
			limit = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
		}
		if names.Has(d.Name) {
			errs = append(errs, field.Duplicate(at.Child("devices").Index(i).Child("name"), d.Name))
		}
		names.Insert(d.Name)
		errs = append(errs, validateDevice(d, perDevice, at.Child("devices").Index(i))...)
	}
	if len(s.Devices) > limit {
		errs = append(errs, field.TooMany(at.Child("devices"), len(s.Devices), limit))
	}
	return errs
}

// validateNodes checks where devices are and counts the ways in which that was said.
func validateNodes(name *string, selector *corev1.NodeSelector, all *bool, at *field.Path) (count int, errs field.ErrorList) {
	if name != nil {
		count++
		if *name == "" {
			errs = append(errs, field.Invalid(at.Child("nodeName"), *name, "must not be empty"))
		} else {
			errs = append(errs, required(*name, subdomain, at.Child("nodeName"))...)
		}
	}
	if selector != nil {
		count++
		errs = append(errs, rules.ValidateNodeSelector(selector, false, at.Child("nodeSelector"))...)
		if len(selector.NodeSelectorTerms) != 1 {
			errs = append(errs, field.Invalid(at.Child("nodeSelector", "nodeSelectorTerms"), selector.NodeSelectorTerms, "must be exactly one"))
		}
	}
	if all != nil {
		count++
		errs = append(errs, onlyTrue(*all, at.Child("allNodes"))...)
	}
	return count, errs
}

func onlyTrue(value bool, at *field.Path) field.ErrorList {
	if value {
		return nil
	}
	return field.ErrorList{field.Invalid(at, value, "must be true or unset")}
}

func validateDevice(d *resourcev1.Device, perDevice bool, at *field.Path) field.ErrorList {
	errs := label(d.Name, at.Child("name"))
	if total, limit := len(d.Attributes)+len(d.Capacity), resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice; total > limit {
		errs = append(errs, field.Invalid(at, total, "has more attributes and capacities than 32"))
	}
	for name, value := range d.Attributes {
		at := at.Child("attributes").Key(string(name))
		errs = append(errs, qualifiedName(string(name), false, at)...)
		errs = append(errs, validateAttribute(value, at)...)
	}
	for name := range d.Capacity {
		errs = append(errs, qualifiedName(string(name), false, at.Child("capacity").Key(string(name)))...)
	}
	for i, t := range d.Taints {
		errs = append(errs, validateTaint(t.Key, t.Value, t.Effect, at.Child("taints").Index(i))...)
	}
	if limit := resourcev1.DeviceTaintsMaxLength; len(d.Taints) > limit {
		errs = append(errs, field.TooMany(at.Child("taints"), len(d.Taints), limit))
	}
	count, more := validateNodes(d.NodeName, d.NodeSelector, d.AllNodes, at)
	errs = append(errs, more...)
	const oneOf = "with perDeviceNodeSelection give exactly one of nodeName, nodeSelector and allNodes, without none"
	switch {
	case perDevice && count == 0:
		errs = append(errs, field.Required(at, oneOf))
	case perDevice && count > 1, !perDevice && count > 0:
		errs = append(errs, field.Invalid(at, "<value omitted>", oneOf))
	}
	return errs
}

func validateTaint(key, value string, effect resourcev1.DeviceTaintEffect, at *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabelName(key, at.Child("key"))
	for _, msg := range validation.IsValidLabelValue(value) {
		errs = append(errs, field.Invalid(at.Child("value"), value, msg))
	}
	return append(errs, validateEffect(effect, at.Child("effect"))...)
}

// validateAttribute checks the value that is given; the generated validation sees to it that there is exactly one.
func validateAttribute(a resourcev1.DeviceAttribute, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if v := a.StringValue; v != nil && len(*v) > resourcev1.DeviceAttributeMaxValueLength {
		errs = append(errs, field.TooLong(at.Child("string"), *v, resourcev1.DeviceAttributeMaxValueLength))
	}
	if v := a.VersionValue; v != nil {
		if len(*v) > resourcev1.DeviceAttributeMaxValueLength {
			errs = append(errs, field.TooLong(at.Child("version"), *v, resourcev1.DeviceAttributeMaxValueLength))
		}
		if _, err := semver.Parse(*v); err != nil {
			errs = append(errs, field.Invalid(at.Child("version"), *v, err.Error()))
		}
	}
	return errs
}
