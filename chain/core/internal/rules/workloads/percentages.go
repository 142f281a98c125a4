package workloads

import (
	"strconv"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateIntOrPercent wants a number of at least 0 or a percentage of at most 100%.
func ValidateIntOrPercent(v intstr.IntOrString, path *field.Path) field.ErrorList {
	errs := ValidateUnboundedIntOrPercent(v, path)
	if percent, ok := percentage(v); ok && percent > 100 {
		errs = append(errs, field.Invalid(path, v, "cannot be more than 100%"))
	}
	return errs
}

// ValidateUnboundedIntOrPercent wants a number of at least 0 or a percentage, which may be more than 100%.
func ValidateUnboundedIntOrPercent(v intstr.IntOrString, path *field.Path) field.ErrorList {
	if v.Type == intstr.Int {
		return apivalidation.ValidateNonnegativeField(int64(v.IntVal), path)
	}
	var errs field.ErrorList
	for _, msg := range validation.IsValidPercent(v.StrVal) {
		errs = append(errs, field.Invalid(path, v, msg))
	}
	return errs
}

// IsZero reports whether v is 0 or 0%. What is neither a number nor a percentage counts as zero.
func IsZero(v intstr.IntOrString) bool {
	if percent, ok := percentage(v); ok {
		return percent == 0
	}
	return v.IntValue() == 0
}

func percentage(v intstr.IntOrString) (int, bool) {
	if v.Type != intstr.String || len(validation.IsValidPercent(v.StrVal)) > 0 {
		return 0, false
	}
	// A number too large for an int comes back as the largest one.
	percent, _ := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	return percent, true
}
