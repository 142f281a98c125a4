package resource

import (
	"fmt"
	"math"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxValidValues is the maximum number of valid values in a policy.
const maxValidValues = 10

// validateCapacity checks the policy by which requests share a capacity (KEP-5075). Only devices
// that allow multiple allocations may have one.
func validateCapacity(c *resourcev1.DeviceCapacity, shared bool, at *field.Path) field.ErrorList {
	p, at := c.RequestPolicy, at.Child("requestPolicy")
	switch {
	case p == nil:
		return nil
	case !shared:
		return field.ErrorList{
			field.Forbidden(at, "may only be set if the device has allowMultipleAllocations"),
		}
	case len(p.ValidValues) > 0 && p.ValidRange != nil:
		return field.ErrorList{field.Forbidden(at, "may not have both validValues and validRange")}
	case len(p.ValidValues) == 0 && p.ValidRange == nil:
		return nil
	case p.Default == nil:
		return field.ErrorList{
			field.Required(at.Child("default"), "required with validValues or validRange"),
		}
	case p.ValidRange != nil:
		return validateRange(p.ValidRange, *p.Default, c.Value, at.Child("validRange"))
	}
	return validateValues(p.ValidValues, *p.Default, c.Value, at.Child("validValues"))
}

// validateValues requires a sorted list without duplicates that includes the default.
func validateValues(
	values []resource.Quantity, standard, capacity resource.Quantity, at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	for i := 1; i < len(values); i++ {
		if values[i-1].Cmp(values[i]) > 0 {
			errs = append(errs, field.Invalid(at.Index(i), values[i].String(),
				"must not be less than the previous value"))
		}
	}
	found := false
	errs = append(errs, unique(values, maxValidValues, at,
		func(q *resource.Quantity) string { d := q.DeepCopy(); return d.AsDec().String() },
		func(q *resource.Quantity, at *field.Path) field.ErrorList {
			found = found || q.Cmp(standard) == 0
			return noMore(*q, capacity, at, "the capacity")
		})...)
	if !found {
		errs = append(errs, field.Invalid(at, standard.String(), "must include the default"))
	}
	return errs
}

func validateRange(
	r *resourcev1.CapacityRequestPolicyRange, standard, capacity resource.Quantity, at *field.Path,
) field.ErrorList {
	if r.Min == nil {
		return field.ErrorList{field.Required(at.Child("min"), "")}
	}
	errs := noMore(*r.Min, capacity, at.Child("min"), "the capacity")
	if standard.Cmp(*r.Min) < 0 {
		errs = append(errs, field.Invalid(at.Child("min"), standard.String(),
			"the default must be at least min"))
	}
	if r.Max != nil {
		errs = append(errs, noMore(*r.Min, *r.Max, at.Child("max"), "max")...)
		errs = append(errs, noMore(*r.Max, capacity, at.Child("max"), "the capacity")...)
		errs = append(errs, noMore(standard, *r.Max, at.Child("max"), "max")...)
	}
	return append(errs, validateStep(r, standard, capacity, at)...)
}

// validateStep requires the default and the maximum to be a multiple of the step above the minimum.
// It counts in whole numbers, rounded up: fractions belong to the feature
// DRAFractionalCapacityRange, which is off.
func validateStep(
	r *resourcev1.CapacityRequestPolicyRange, standard, capacity resource.Quantity, at *field.Path,
) field.ErrorList {
	if r.Step == nil {
		return nil
	}
	step := at.Child("step")
	if r.Step.Sign() <= 0 {
		return field.ErrorList{field.Invalid(step, r.Step.String(), "must be greater than zero")}
	}
	second := r.Min.DeepCopy()
	second.Add(*r.Step)
	errs := noMore(second, capacity, step, "the capacity")
	countable := true
	for _, a := range []struct {
		name string
		q    *resource.Quantity
	}{{"default", &standard}, {"min", r.Min}, {"max", r.Max}, {"step", r.Step}} {
		if a.q != nil && (a.q.Sign() < 0 || a.q.CmpInt64(math.MaxInt64) > 0) {
			errs = append(errs, field.Invalid(at.Child(a.name), a.q.String(),
				"must be between 0 and 2^63-1"))
			countable = false
		}
	}
	for _, q := range []*resource.Quantity{&standard, r.Max} {
		if countable && q != nil && (q.Value()-r.Min.Value())%r.Step.Value() != 0 {
			errs = append(errs, field.Invalid(step, q.String(),
				fmt.Sprintf("must be a multiple of the step %s above the minimum %s", r.Step, r.Min)))
		}
	}
	return errs
}

func noMore(q, limit resource.Quantity, at *field.Path, what string) field.ErrorList {
	if q.Cmp(limit) <= 0 {
		return nil
	}
	return field.ErrorList{
		field.Invalid(at, q.String(), fmt.Sprintf("must not be more than %s, %s", what, limit.String())),
	}
}
