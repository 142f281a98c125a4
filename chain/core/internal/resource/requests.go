package resource

import (
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/kinproc/kinproc/chain/core/internal/rules/volumesources"
	"github.com/kinproc/kinproc/chain/features"
)

// defaultDevices fills in what the client left out. In v1beta1, a request without a class may be
// one with alternatives, so its allocation mode is not defaulted.
func defaultDevices(d *resourcev1.DeviceClaim, v1beta1 bool) {
	for i := range d.Requests {
		if e := d.Requests[i].Exactly; e != nil {
			if e.DeviceClassName != "" || !v1beta1 {
				defaultMode(&e.AllocationMode, &e.Count)
			}
			defaultTolerations(e.Tolerations)
		}
		for j := range d.Requests[i].FirstAvailable {
			s := &d.Requests[i].FirstAvailable[j]
			defaultMode(&s.AllocationMode, &s.Count)
			defaultTolerations(s.Tolerations)
		}
	}
}

func defaultMode(mode *resourcev1.DeviceAllocationMode, count *int64) {
	if *mode == "" {
		*mode = resourcev1.DeviceAllocationModeExactCount
	}
	if *mode == resourcev1.DeviceAllocationModeExactCount && *count == 0 {
		*count = 1
	}
}

func defaultTolerations(list []resourcev1.DeviceToleration) {
	for i := range list {
		if list[i].Operator == "" {
			list[i].Operator = resourcev1.DeviceTolerationOpEqual
		}
	}
}

// prepareClaimSpec drops the fields of features that are off; old is nil for a new claim.
func prepareClaimSpec(s, old *resourcev1.ResourceClaimSpec) {
	dropDerivedAttributes(&s.Devices)
	features.Drop(claimFeatures(), s, old, features.Enabled)
}

// dropDerivedAttributes drops the field of the feature DRADerivedAttributes, which is off.
func dropDerivedAttributes(d *resourcev1.DeviceClaim) {
	for i := range d.Requests {
		if e := d.Requests[i].Exactly; e != nil {
			e.DerivedAttributes = nil
		}
		for j := range d.Requests[i].FirstAvailable {
			d.Requests[i].FirstAvailable[j].DerivedAttributes = nil
		}
	}
}

// validateDevices checks the devices of a new claim. They are immutable, so updates do not need it.
func validateDevices(d *resourcev1.DeviceClaim, at *field.Path) field.ErrorList {
	names := requestNames(d)
	errs := unique(d.Requests, resourcev1.DeviceRequestsMaxSize, at.Child("requests"),
		func(r *resourcev1.DeviceRequest) string { return r.Name }, validateRequest)
	errs = append(errs, each(d.Constraints, resourcev1.DeviceConstraintsMaxSize,
		at.Child("constraints"),
		func(c *resourcev1.DeviceConstraint, at *field.Path) field.ErrorList {
			return validateConstraint(c, names, at)
		})...)
	return append(errs, each(d.Config, resourcev1.DeviceConfigMaxSize, at.Child("config"),
		func(c *resourcev1.DeviceClaimConfiguration, at *field.Path) field.ErrorList {
			errs := references(c.Requests, names, at.Child("requests"))
			return append(errs, validateConfiguration(&c.DeviceConfiguration, false, at)...)
		})...)
}

func validateConstraint(
	c *resourcev1.DeviceConstraint, names sets.Set[string], at *field.Path,
) field.ErrorList {
	errs := references(c.Requests, names, at.Child("requests"))
	switch {
	case c.MatchAttribute != nil:
		errs = append(errs, fullyQualifiedName(string(*c.MatchAttribute), at.Child("matchAttribute"))...)
	case c.DistinctAttribute != nil:
		errs = append(errs, fullyQualifiedName(string(*c.DistinctAttribute),
			at.Child("distinctAttribute"))...)
	case features.Enabled(features.DRAConsumableCapacity):
		errs = append(errs, field.Required(at, "one of matchAttribute and distinctAttribute is required"))
	default:
		errs = append(errs, field.Required(at.Child("matchAttribute"), ""))
	}
	return errs
}

// requestNames returns the names by which other parts of a claim refer to its requests and their
// alternatives.
func requestNames(d *resourcev1.DeviceClaim) sets.Set[string] {
	names := sets.New[string]()
	for _, r := range d.Requests {
		names.Insert(r.Name)
		for _, s := range r.FirstAvailable {
			names.Insert(r.Name + "/" + s.Name)
		}
	}
	return names
}

func references(list []string, names sets.Set[string], at *field.Path) field.ErrorList {
	return unique(list, resourcev1.DeviceRequestsMaxSize, at,
		func(name *string) string { return *name },
		func(name *string, at *field.Path) field.ErrorList { return reference(*name, names, at) })
}

func reference(name string, names sets.Set[string], at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for part := range strings.SplitSeq(name, "/") {
		errs = append(errs, label(part, at)...)
	}
	if !names.Has(name) {
		errs = append(errs, field.Invalid(at, name, "must be the name of a request in the claim"))
	}
	return errs
}

func validateRequest(r *resourcev1.DeviceRequest, at *field.Path) field.ErrorList {
	errs := label(r.Name, at.Child("name"))
	switch e := r.Exactly; {
	case e == nil && len(r.FirstAvailable) == 0:
		errs = append(errs, field.Required(at, "one of exactly and firstAvailable is required"))
	case e != nil && len(r.FirstAvailable) > 0:
		errs = append(errs, field.Invalid(at, r.Name, "may not have both exactly and firstAvailable"))
	case e != nil:
		errs = append(errs, validateWanted(wanted{
			e.DeviceClassName, e.Selectors, e.AllocationMode, e.Count, e.Tolerations,
		}, at.Child("exactly"))...)
	default:
		errs = append(errs, unique(r.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize,
			at.Child("firstAvailable"), func(s *resourcev1.DeviceSubRequest) string { return s.Name },
			func(s *resourcev1.DeviceSubRequest, at *field.Path) field.ErrorList {
				errs := label(s.Name, at.Child("name"))
				return append(errs, validateWanted(wanted{
					s.DeviceClassName, s.Selectors, s.AllocationMode, s.Count, s.Tolerations,
				}, at)...)
			})...)
	}
	return errs
}

// wanted holds the fields that a request and an alternative have in common.
type wanted struct {
	class       string
	selectors   []resourcev1.DeviceSelector
	mode        resourcev1.DeviceAllocationMode
	count       int64
	tolerations []resourcev1.DeviceToleration
}

func validateWanted(w wanted, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if w.class == "" {
		errs = append(errs, field.Required(at.Child("deviceClassName"), ""))
	} else {
		errs = append(errs, subdomain(w.class, at.Child("deviceClassName"))...)
	}
	errs = append(errs, validateSelectors(w.selectors, false, at.Child("selectors"))...)
	switch w.mode {
	case resourcev1.DeviceAllocationModeExactCount:
		if w.count <= 0 {
			errs = append(errs, field.Invalid(at.Child("count"), w.count, "must be greater than zero"))
		}
	case resourcev1.DeviceAllocationModeAll:
		if w.count != 0 {
			errs = append(errs, field.Invalid(at.Child("count"), w.count,
				"may not be set if allocationMode is All"))
		}
	default:
		modes := []resourcev1.DeviceAllocationMode{
			resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount,
		}
		errs = append(errs, field.NotSupported(at.Child("allocationMode"), w.mode, modes))
	}
	return append(errs, validateTolerations(w.tolerations, at.Child("tolerations"))...)
}

func validateTolerations(list []resourcev1.DeviceToleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range list {
		errs = append(errs, validateToleration(&list[i], at.Index(i))...)
	}
	return errs
}

func validateToleration(t *resourcev1.DeviceToleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
	}
	switch t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value,
				"may not be set if operator is Exists"))
		}
	case resourcev1.DeviceTolerationOpEqual:
		errs = append(errs, labelValue(t.Value, at.Child("value"))...)
	case "":
		errs = append(errs, field.Required(at.Child("operator"), ""))
	default:
		operators := []resourcev1.DeviceTolerationOperator{
			resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists,
		}
		errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator, operators))
	}
	if t.Effect != "" {
		errs = append(errs, validateEffect(t.Effect, at.Child("effect"))...)
	}
	return errs
}

func validateEffect(e resourcev1.DeviceTaintEffect, at *field.Path) field.ErrorList {
	effects := sets.New(resourcev1.DeviceTaintEffectNone, resourcev1.DeviceTaintEffectNoSchedule,
		resourcev1.DeviceTaintEffectNoExecute)
	switch {
	case e == "":
		return field.ErrorList{field.Required(at, "")}
	case !effects.Has(e):
		return field.ErrorList{field.NotSupported(at, e, sets.List(effects))}
	}
	return nil
}

// validateSelectors compiles the expressions, unless they are stored and were compiled on creation.
func validateSelectors(
	list []resourcev1.DeviceSelector, stored bool, at *field.Path,
) field.ErrorList {
	return each(list, resourcev1.DeviceSelectorsMaxSize, at,
		func(s *resourcev1.DeviceSelector, at *field.Path) field.ErrorList {
			switch {
			case s.CEL == nil:
				return field.ErrorList{field.Required(at.Child("cel"), "")}
			case stored:
				return nil
			}
			return validateExpression(s.CEL.Expression, at.Child("cel", "expression"))
		})
}

func validateExpression(expression string, at *field.Path) field.ErrorList {
	if len(expression) > resourcev1.CELSelectorExpressionMaxLength {
		return field.ErrorList{
			field.TooLong(at, "" /* not the expression */, resourcev1.CELSelectorExpressionMaxLength),
		}
	}
	mode := environment.NewExpressions
	result := cel.GetCompiler(cel.Features{
		EnableConsumableCapacity: features.Enabled(features.DRAConsumableCapacity),
	}).CompileCELExpression(expression, cel.Options{EnvType: &mode})
	switch err := result.Error; {
	case err != nil && err.Type == apiservercel.ErrorTypeRequired:
		return field.ErrorList{field.Required(at, err.Detail)}
	case err != nil && err.Type == apiservercel.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(at, expression, err.Detail)}
	case err != nil:
		return field.ErrorList{field.InternalError(at, err)}
	case result.MaxCost > resourcev1.CELSelectorExpressionMaxCost:
		return field.ErrorList{
			field.Forbidden(at, fmt.Sprintf("estimated cost %d exceeds the limit of %d",
				result.MaxCost, resourcev1.CELSelectorExpressionMaxCost)),
		}
	}
	return nil
}

func validateConfiguration(
	c *resourcev1.DeviceConfiguration, stored bool, at *field.Path,
) field.ErrorList {
	if c.Opaque == nil {
		return field.ErrorList{field.Required(at.Child("opaque"), "")}
	}
	at = at.Child("opaque")
	errs := volumesources.ValidateCSIDriverName(c.Opaque.Driver, at.Child("driver"))
	return append(errs, object(c.Opaque.Parameters, stored, resourcev1.OpaqueParametersMaxLength,
		at.Child("parameters"))...)
}
