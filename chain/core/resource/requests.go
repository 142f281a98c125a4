package resource

import (
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
)

const maxTolerations = 16

func subdomain(v string) []string { return apivalidation.NameIsDNSSubdomain(v, false) }

func defaultDevices(d *resourcev1.DeviceClaim) {
	for i := range d.Requests {
		if e := d.Requests[i].Exactly; e != nil {
			defaultMode(&e.AllocationMode, &e.Count, e.Tolerations)
		}
		for j := range d.Requests[i].FirstAvailable {
			s := &d.Requests[i].FirstAvailable[j]
			defaultMode(&s.AllocationMode, &s.Count, s.Tolerations)
		}
	}
}

func defaultMode(mode *resourcev1.DeviceAllocationMode, count *int64, tolerations []resourcev1.DeviceToleration) {
	if *mode == "" {
		*mode = resourcev1.DeviceAllocationModeExactCount
	}
	if *mode == resourcev1.DeviceAllocationModeExactCount && *count == 0 {
		*count = 1
	}
	for i := range tolerations {
		if tolerations[i].Operator == "" {
			tolerations[i].Operator = resourcev1.DeviceTolerationOpEqual
		}
	}
}

// validateDevices checks a claim but for what is generated. With stored, its expressions are in etcd already.
func validateDevices(d *resourcev1.DeviceClaim, stored bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := requestNames(d)
	for i := range d.Requests {
		errs = append(errs, validateRequest(&d.Requests[i], stored, at.Child("requests").Index(i))...)
	}
	for i, c := range d.Constraints {
		at := at.Child("constraints").Index(i)
		errs = append(errs, references(c.Requests, names, at.Child("requests"))...)
		switch {
		case c.MatchAttribute != nil && c.DistinctAttribute != nil:
			errs = append(errs, field.Invalid(at, c, "give either matchAttribute or distinctAttribute"))
		case c.MatchAttribute != nil:
			errs = append(errs, qualifiedName(string(*c.MatchAttribute), true, at.Child("matchAttribute"))...)
		case c.DistinctAttribute != nil:
			errs = append(errs, qualifiedName(string(*c.DistinctAttribute), true, at.Child("distinctAttribute"))...)
		default:
			errs = append(errs, field.Required(at, "give matchAttribute or distinctAttribute"))
		}
	}
	for i, c := range d.Config {
		at := at.Child("config").Index(i)
		errs = append(errs, references(c.Requests, names, at.Child("requests"))...)
		errs = append(errs, validateConfiguration(&c.DeviceConfiguration, at)...)
	}
	return errs
}

// requestNames are the names by which parts of a claim refer to its requests and to their alternatives.
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
	var errs field.ErrorList
	for i, name := range list {
		errs = append(errs, reference(name, names, at.Index(i))...)
	}
	return errs
}

func reference(name string, names sets.Set[string], at *field.Path) field.ErrorList {
	var errs field.ErrorList
	request, sub, found := strings.Cut(name, "/")
	errs = append(errs, label(request, at)...)
	if found {
		errs = append(errs, label(sub, at)...)
	}
	if len(errs) == 0 && !names.Has(name) {
		errs = append(errs, field.Invalid(at, name, "must be the name of a request in the claim"))
	}
	return errs
}

func validateRequest(r *resourcev1.DeviceRequest, stored bool, at *field.Path) field.ErrorList {
	errs := label(r.Name, at.Child("name"))
	switch {
	case r.Exactly == nil && len(r.FirstAvailable) == 0:
		errs = append(errs, field.Required(at, "give exactly or firstAvailable"))
	case r.Exactly != nil && len(r.FirstAvailable) > 0:
		errs = append(errs, field.Invalid(at, r.Name, "give either exactly or firstAvailable"))
	}
	if e := r.Exactly; e != nil {
		errs = append(errs, validateWanted(wanted{e.DeviceClassName, e.Selectors, e.AllocationMode, e.Count, e.Tolerations, e.Capacity}, stored, at.Child("exactly"))...)
	}
	for i := range r.FirstAvailable {
		s, at := &r.FirstAvailable[i], at.Child("firstAvailable").Index(i)
		errs = append(errs, label(s.Name, at.Child("name"))...)
		errs = append(errs, validateWanted(wanted{s.DeviceClassName, s.Selectors, s.AllocationMode, s.Count, s.Tolerations, s.Capacity}, stored, at)...)
	}
	return errs
}

// wanted is what a request and an alternative of one have in common.
type wanted struct {
	class       string
	selectors   []resourcev1.DeviceSelector
	mode        resourcev1.DeviceAllocationMode
	count       int64
	tolerations []resourcev1.DeviceToleration
	capacity    *resourcev1.CapacityRequirements
}

func validateWanted(w wanted, stored bool, at *field.Path) field.ErrorList {
	errs := required(w.class, subdomain, at.Child("deviceClassName"))
	errs = append(errs, validateSelectors(w.selectors, func(string) bool { return stored }, at.Child("selectors"))...)
	switch w.mode {
	case resourcev1.DeviceAllocationModeExactCount:
		if w.count <= 0 {
			errs = append(errs, field.Invalid(at.Child("count"), w.count, "must be greater than zero"))
		}
	case resourcev1.DeviceAllocationModeAll:
		if w.count != 0 {
			errs = append(errs, field.Invalid(at.Child("count"), w.count, "does not go with allocationMode All"))
		}
	default:
		modes := []resourcev1.DeviceAllocationMode{resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount}
		errs = append(errs, field.NotSupported(at.Child("allocationMode"), w.mode, modes))
	}
	if len(w.tolerations) > maxTolerations {
		errs = append(errs, field.TooMany(at.Child("tolerations"), len(w.tolerations), maxTolerations))
	}
	for i, t := range w.tolerations {
		errs = append(errs, validateToleration(t, at.Child("tolerations").Index(i))...)
	}
	if w.capacity != nil {
		for name := range w.capacity.Requests {
			errs = append(errs, qualifiedName(string(name), false, at.Child("capacity", "requests").Key(string(name)))...)
		}
	}
	return errs
}

func validateToleration(t resourcev1.DeviceToleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
	}
	switch t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, "does not go with operator Exists"))
		}
	case resourcev1.DeviceTolerationOpEqual:
		for _, msg := range validation.IsValidLabelValue(t.Value) {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, msg))
		}
	case "":
		errs = append(errs, field.Required(at.Child("operator"), ""))
	default:
		operators := []resourcev1.DeviceTolerationOperator{resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists}
		errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator, operators))
	}
	if t.Key == "" && t.Operator != resourcev1.DeviceTolerationOpExists {
		errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "without a key must be Exists"))
	}
	if t.Effect != "" {
		errs = append(errs, validateEffect(t.Effect, at.Child("effect"))...)
	}
	if t.TolerationSeconds != nil && t.Effect != resourcev1.DeviceTaintEffectNoExecute {
		errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "must be NoExecute for tolerationSeconds to mean anything"))
	}
	return errs
}

func validateEffect(e resourcev1.DeviceTaintEffect, at *field.Path) field.ErrorList {
	effects := sets.New(resourcev1.DeviceTaintEffectNone, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNoExecute)
	switch {
	case e == "":
		return field.ErrorList{field.Required(at, "")}
	case !effects.Has(e):
		return field.ErrorList{field.NotSupported(at, e, sets.List(effects))}
	}
	return nil
}

// validateSelectors compiles expressions as the scheduler will; what is in etcd may use more than what is new.
func validateSelectors(list []resourcev1.DeviceSelector, stored func(expression string) bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, s := range list {
		at := at.Index(i).Child("cel")
		if s.CEL == nil {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		at, expression := at.Child("expression"), s.CEL.Expression
		if len(expression) > resourcev1.CELSelectorExpressionMaxLength {
			errs = append(errs, field.TooLong(at, "" /* not the expression */, resourcev1.CELSelectorExpressionMaxLength))
			continue
		}
		mode := environment.NewExpressions
		if stored(expression) {
			mode = environment.StoredExpressions
		}
		result := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).CompileCELExpression(expression, cel.Options{EnvType: &mode})
		switch {
		case result.Error != nil && result.Error.Type == apiservercel.ErrorTypeRequired:
			errs = append(errs, field.Required(at, result.Error.Detail))
		case result.Error != nil && result.Error.Type == apiservercel.ErrorTypeInvalid:
			errs = append(errs, field.Invalid(at, expression, result.Error.Detail))
		case result.Error != nil:
			errs = append(errs, field.InternalError(at, result.Error))
		case result.MaxCost > resourcev1.CELSelectorExpressionMaxCost:
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("could cost %d, which is more than %d", result.MaxCost, resourcev1.CELSelectorExpressionMaxCost)))
		}
	}
	return errs
}

func validateConfiguration(c *resourcev1.DeviceConfiguration, at *field.Path) field.ErrorList {
	if c.Opaque == nil {
		return field.ErrorList{field.Required(at.Child("opaque"), "")}
	}
	at = at.Child("opaque")
	errs := driverName(c.Opaque.Driver, at.Child("driver"))
	return append(errs, object(c.Opaque.Parameters, resourcev1.OpaqueParametersMaxLength, at.Child("parameters"))...)
}
