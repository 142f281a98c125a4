package resource

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules/nodeselectors"
	"github.com/kinproc/kinproc/chain/core/internal/rules/volumesources"
	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/chain/kind"
)

// ResourceSlices declares resourceslices.
func ResourceSlices() *kind.Kind[*resourcev1.ResourceSlice] {
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
		ClusterScoped: true,
		Versions:      sliceVersions(),
		Default:       defaultSlice,
		PrepareCreate: func(_ context.Context, s T) {
			dropAlpha(&s.Spec)
			features.Drop(sliceFeatures(), &s.Spec, nil, features.Enabled)
		},
		PrepareUpdate: func(_ context.Context, s, old T) {
			// Like kube-apiserver, increment the generation before dropping fields.
			if !equality.Semantic.DeepEqual(s.Spec, old.Spec) {
				s.Generation = old.Generation + 1
			}
			dropAlpha(&s.Spec)
			features.Drop(sliceFeatures(), &s.Spec, &old.Spec, features.Enabled)
		},
		Validate: func(ctx context.Context, s T) field.ErrorList {
			return together(ctx, validateSlice(&s.Spec, nil),
				resourcev1.Validate_ResourceSliceSpec(ctx, asCreate(), at, &s.Spec, nil))
		},
		ValidateUpdate: func(ctx context.Context, s, old T) field.ErrorList {
			errs := validateSlice(&s.Spec, &old.Spec)
			errs = append(errs, apivalidation.ValidateImmutableField(s.Spec.Driver,
				old.Spec.Driver, at.Child("driver"))...)
			errs = append(errs, apivalidation.ValidateImmutableField(s.Spec.Pool.Name, old.Spec.Pool.Name,
				at.Child("pool", "name"))...)
			errs = append(errs, apivalidation.ValidateImmutableField(s.Spec.NodeName, old.Spec.NodeName,
				at.Child("nodeName"))...)
			return together(ctx, errs,
				resourcev1.Validate_ResourceSliceSpec(ctx, asUpdate(), at, &s.Spec, &old.Spec))
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Node", Description: "Node that has the devices."},
				{Name: "Driver", Description: "Driver of the devices."},
				{Name: "Pool", Description: "Pool that the devices belong to."},
				kind.AgeColumn(),
			},
			Row: func(s T) []any {
				return []any{s.Name, nodeName(s), s.Spec.Driver, s.Spec.Pool.Name, kind.Age(s)}
			},
		},
		Warnings: func(_ context.Context, s, _ T) []string {
			if s.Spec.Driver == strings.ToLower(s.Spec.Driver) {
				return nil
			}
			return []string{
				fmt.Sprintf("%s: %q should not contain upper case letters", at.Child("driver"), s.Spec.Driver),
			}
		},
		Generation: true,
		Fields: map[string]func(T) string{
			resourcev1.ResourceSliceSelectorNodeName: nodeName,
			resourcev1.ResourceSliceSelectorDriver:   func(s T) string { return s.Spec.Driver },
		},
		Quirks: kind.Quirks{ReturnDeleted: true},
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

// dropAlpha drops the fields of features that are off: DRAResourcePoolStatus,
// DRAOptionalNodeOperations, DRANodeAllocatableResources, DRADeviceCompatibilityGroups and
// DRAListTypeAttributes.
func dropAlpha(s *resourcev1.ResourceSliceSpec) {
	s.PartitionTypeAttribute, s.SkipNodeOperations = nil, nil
	for i := range s.Devices {
		d := &s.Devices[i]
		d.NodeAllocatableResources = nil
		for j := range d.ConsumesCounters {
			d.ConsumesCounters[j].CompatibilityGroups = nil
		}
		for name, a := range d.Attributes {
			a.BoolValues, a.IntValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
			d.Attributes[name] = a
		}
	}
}

// validateSlice checks s; old is nil for a new slice.
func validateSlice(s, old *resourcev1.ResourceSliceSpec) field.ErrorList {
	at := field.NewPath("spec")
	errs := volumesources.ValidateCSIDriverName(s.Driver, at.Child("driver"))
	errs = append(errs, poolName(s.Pool.Name, at.Child("pool", "name"))...)
	if s.Pool.ResourceSliceCount <= 0 {
		errs = append(errs, field.Invalid(at.Child("pool", "resourceSliceCount"),
			s.Pool.ResourceSliceCount, "must be greater than zero"))
	}
	if s.Pool.Generation < 0 {
		errs = append(errs, field.Invalid(at.Child("pool", "generation"), s.Pool.Generation,
			"must not be negative"))
	}
	errs = append(errs, validateSliceNodes(s, at)...)
	if s.SharedCounters != nil && s.Devices != nil {
		errs = append(errs, field.Invalid(at, "", "may not have both sharedCounters and devices"))
	}

	limit := resourcev1.ResourceSliceMaxDevices
	if slices.ContainsFunc(s.Devices,
		func(d resourcev1.Device) bool { return len(d.Taints) > 0 || len(d.ConsumesCounters) > 0 }) {
		limit = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	name := func(d *resourcev1.Device) string { return d.Name }
	perDevice := s.PerDeviceNodeSelection != nil && *s.PerDeviceNodeSelection
	errs = append(errs, unique(s.Devices, limit, at.Child("devices"), name,
		func(d *resourcev1.Device, at *field.Path) field.ErrorList {
			var was *resourcev1.Device
			if old != nil {
				if i := slices.IndexFunc(old.Devices, func(o resourcev1.Device) bool {
					return o.Name == d.Name
				}); i >= 0 {
					was = &old.Devices[i]
				}
			}
			return append(validateDevice(d, was, at), validateDeviceNodes(d, perDevice, at)...)
		})...)
	return append(errs, each(s.SharedCounters, resourcev1.ResourceSliceMaxCounterSets,
		at.Child("sharedCounters"),
		func(c *resourcev1.CounterSet, at *field.Path) field.ErrorList {
			return tooMany(c.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet,
				at.Child("counters"))
		})...)
}

func tooMany[V any](m map[string]V, limit int, at *field.Path) field.ErrorList {
	if len(m) <= limit {
		return nil
	}
	return field.ErrorList{field.TooMany(at, len(m), limit)}
}

// validateSliceNodes checks the fields that say on which nodes the devices of a slice are.
func validateSliceNodes(s *resourcev1.ResourceSliceSpec, at *field.Path) field.ErrorList {
	count, errs := validateNodes(s.NodeName, s.NodeSelector, s.AllNodes, at)
	if n := s.NodeSelector; n != nil && len(n.NodeSelectorTerms) != 1 {
		errs = append(errs, field.Invalid(at.Child("nodeSelector", "nodeSelectorTerms"),
			n.NodeSelectorTerms, "must have exactly one term"))
	}
	if p := s.PerDeviceNodeSelection; p != nil && *p {
		count++
	} else if p != nil {
		errs = append(errs, field.Invalid(at.Child("perDeviceNodeSelection"), *p,
			"must be true or unset"))
	}
	return append(errs, exactlyOne(count, at,
		"exactly one of nodeName, nodeSelector, allNodes and perDeviceNodeSelection is required")...)
}

// validateDeviceNodes checks the fields that say on which nodes a device is. They are required if
// the slice has perDeviceNodeSelection, and forbidden otherwise.
func validateDeviceNodes(d *resourcev1.Device, perDevice bool, at *field.Path) field.ErrorList {
	if !perDevice {
		if d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil {
			return field.ErrorList{field.Invalid(at, d.Name,
				"nodeName, nodeSelector and allNodes may only be set if the slice has perDeviceNodeSelection")}
		}
		return nil
	}
	count, errs := validateNodes(d.NodeName, d.NodeSelector, d.AllNodes, at)
	return append(errs, exactlyOne(count, at,
		"exactly one of nodeName, nodeSelector and allNodes is required with perDeviceNodeSelection")...)
}

func exactlyOne(count int, at *field.Path, rule string) field.ErrorList {
	switch count {
	case 0:
		return field.ErrorList{field.Required(at, rule)}
	case 1:
		return nil
	}
	return field.ErrorList{field.Invalid(at, "<value omitted>", rule)}
}

// validateNodes checks the alternative ways to select nodes and returns how many are used.
func validateNodes(
	name *string, selector *corev1.NodeSelector, all *bool, at *field.Path,
) (count int, errs field.ErrorList) {
	switch {
	case name == nil:
	case *name == "":
		errs = append(errs, field.Invalid(at.Child("nodeName"), *name, "must not be empty"))
	default:
		count++
		errs = append(errs, subdomain(*name, at.Child("nodeName"))...)
	}
	if selector != nil {
		count++
		errs = append(errs, nodeselectors.Validate(selector, false, at.Child("nodeSelector"))...)
	}
	switch {
	case all == nil:
	case *all:
		count++
	default:
		errs = append(errs, field.Invalid(at.Child("allNodes"), *all, "must be true or unset"))
	}
	return count, errs
}

// validateDevice checks d except for its nodes; old is nil for a new device. Unchanged taints, and
// the unchanged capacity of a device that allows multiple allocations, are not checked again.
func validateDevice(d, old *resourcev1.Device, at *field.Path) field.ErrorList {
	errs := label(d.Name, at.Child("name"))
	if total, limit := len(d.Attributes)+len(d.Capacity),
		resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice; total > limit {
		errs = append(errs, field.Invalid(at, total,
			fmt.Sprintf("must have at most %d attributes and capacities in total", limit)))
	}
	for name, a := range d.Attributes {
		// Like kube-apiserver, report invalid names for the map as a whole.
		errs = append(errs, qualifiedName(string(name), at.Child("attributes"))...)
		errs = append(errs, validateAttribute(a, at.Child("attributes").Key(string(name)))...)
	}
	shared := d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
	if old == nil || !shared || !equality.Semantic.DeepEqual(old.Capacity, d.Capacity) {
		for name, c := range d.Capacity {
			errs = append(errs, qualifiedName(string(name), at.Child("capacity"))...)
			errs = append(errs, validateCapacity(&c, shared, at.Child("capacity").Key(string(name)))...)
		}
	}
	if old == nil || !equality.Semantic.DeepEqual(old.Taints, d.Taints) {
		errs = append(errs, each(d.Taints, resourcev1.DeviceTaintsMaxLength, at.Child("taints"),
			func(t *resourcev1.DeviceTaint, at *field.Path) field.ErrorList {
				return append(validateTaint(t.Key, t.Value, at),
					validateEffect(t.Effect, at.Child("effect"))...)
			})...)
	}
	errs = append(errs, each(d.ConsumesCounters,
		resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, at.Child("consumesCounters"),
		func(c *resourcev1.DeviceCounterConsumption, at *field.Path) field.ErrorList {
			return tooMany(c.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption,
				at.Child("counters"))
		})...)
	return append(errs, validateBindingConditions(d.BindingConditions,
		d.BindingFailureConditions, at)...)
}

func validateTaint(key, value string, at *field.Path) field.ErrorList {
	return append(metavalidation.ValidateLabelName(key, at.Child("key")),
		labelValue(value, at.Child("value"))...)
}

// validateAttribute checks the attribute's value. The generated validation checks that there is
// exactly one.
func validateAttribute(a resourcev1.DeviceAttribute, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if v := a.StringValue; v != nil && len(*v) > resourcev1.DeviceAttributeMaxValueLength {
		errs = append(errs, field.TooLong(at.Child("string"), *v,
			resourcev1.DeviceAttributeMaxValueLength))
	}
	if v := a.VersionValue; v != nil {
		if len(*v) > resourcev1.DeviceAttributeMaxValueLength {
			errs = append(errs, field.TooLong(at.Child("version"), *v,
				resourcev1.DeviceAttributeMaxValueLength))
		}
		if _, err := semver.Parse(*v); err != nil {
			errs = append(errs, field.Invalid(at.Child("version"), *v, err.Error()))
		}
	}
	return errs
}

// validateBindingConditions checks the conditions that pods wait for before they are bound, and
// those that make binding fail. A device has both or neither.
func validateBindingConditions(success, failure []string, at *field.Path) field.ErrorList {
	successes, failures := at.Child("bindingConditions"), at.Child("bindingFailureConditions")
	check := func(c *string, at *field.Path) field.ErrorList {
		return metavalidation.ValidateLabelName(*c, at)
	}
	errs := each(success, resourcev1.BindingConditionsMaxSize, successes, check)
	errs = append(errs, each(failure, resourcev1.BindingFailureConditionsMaxSize, failures, check)...)
	succeeds, fails := sets.New[string](), sets.New[string]()
	for i, c := range success {
		if succeeds.Has(c) {
			errs = append(errs, field.Duplicate(successes.Index(i), c))
		}
		succeeds.Insert(c)
	}
	for i, c := range failure {
		if fails.Has(c) {
			errs = append(errs, field.Duplicate(failures.Index(i), c))
		}
		fails.Insert(c)
		if succeeds.Has(c) {
			errs = append(errs, field.Invalid(failures.Index(i), c, "must not be in bindingConditions too"))
		}
	}
	switch {
	case len(success) == 0 && len(failure) > 0:
		errs = append(errs, field.Invalid(successes, success, "required with bindingFailureConditions"))
	case len(failure) == 0 && len(success) > 0:
		errs = append(errs, field.Invalid(failures, failure, "required with bindingConditions"))
	}
	return errs
}
