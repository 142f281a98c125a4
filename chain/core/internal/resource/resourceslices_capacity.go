package resource

import (
	"fmt"
	"math"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxValidValues is how many amounts a policy may list.
const maxValidValues = 10

// validateCapacity checks the policy by which requests share a capacity (KEP-5075): only capacities of devices that are shared have one.
func validateCapacity(c *resourcev1.DeviceCapacity, shared bool, at *field.Path) field.ErrorList {
	p, at := c.RequestPolicy, at.Child("requestPolicy")
	switch {
	case p == nil:
		return nil
	case !shared:
		return field.ErrorList{field.Forbidden(at, "needs allowMultipleAllocations of the device")}
	case len(p.ValidValues) > 0 && p.ValidRange != nil:
		return field.ErrorList{field.Forbidden(at, "validValues and validRange exclude each other")}
	case len(p.ValidValues) == 0 && p.ValidRange == nil:
		return nil
	case p.Default == nil:
		return field.ErrorList{field.Required(at.Child("default"), "say what a request gets that asks for nothing")}
	case p.ValidRange != nil:
		return validateRange(p.ValidRange, *p.Default, c.Value, at.Child("validRange"))
	}
	return validateValues(p.ValidValues, *p.Default, c.Value, at.Child("validValues"))
}

// validateValues wants a sorted list without duplicates that has the default in it.
func validateValues(values []resource.Quantity, standard, capacity resource.Quantity, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := 1; i < len(values); i++ {
		if values[i-1].Cmp(values[i]) > 0 {
			errs = append(errs, field.Invalid(at.Index(i), values[i].String(), "must not be less than the value before"))
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
		errs = append(errs, field.Invalid(at, standard.String(), "must have the default in it"))
	}
	return errs
}

func validateRange(r *resourcev1.CapacityRequestPolicyRange, standard, capacity resource.Quantity, at *field.Path) field.ErrorList {
	if r.Min == nil {
		return field.ErrorList{field.Required(at.Child("min"), "")}
	}
	errs := noMore(*r.Min, capacity, at.Child("min"), "the capacity")
	if standard.Cmp(*r.Min) < 0 {
		errs = append(errs, field.Invalid(at.Child("min"), standard.String(), "the default must be min at least"))
	}
	if r.Max != nil {
		errs = append(errs, noMore(*r.Min, *r.Max, at.Child("max"), "max")...)
		errs = append(errs, noMore(*r.Max, capacity, at.Child("max"), "the capacity")...)
		errs = append(errs, noMore(standard, *r.Max, at.Child("max"), "max")...)
	}
	return append(errs, validateStep(r, standard, capacity, at)...)
}

// validateStep wants the default and the maximum to be some steps above the minimum. It counts in whole numbers, rounded up: thousandths
// are for a feature that is off, DRAFractionalCapacityRange.
func validateStep(r *resourcev1.CapacityRequestPolicyRange, standard, capacity resource.Quantity, at *field.Path) field.ErrorList {
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
			errs = append(errs, field.Invalid(at.Child(a.name), a.q.String(), "must be from 0 to 2^63-1"))
			countable = false
		}
	}
	for _, q := range []*resource.Quantity{&standard, r.Max} {
		if countable && q != nil && (q.Value()-r.Min.Value())%r.Step.Value() != 0 {
			errs = append(errs, field.Invalid(step, q.String(), fmt.Sprintf("must be a number of steps of %s above %s", r.Step, r.Min)))
		}
	}
	return errs
}

func noMore(q, limit resource.Quantity, at *field.Path, what string) field.ErrorList {
	if q.Cmp(limit) <= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, q.String(), fmt.Sprintf("must not be more than %s, %s", what, limit.String()))}
}
