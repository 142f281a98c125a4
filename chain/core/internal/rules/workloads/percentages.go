package workloads

import (
	"strconv"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
)

// ValidateIntOrPercent requires a non-negative number or a percentage of at most 100%.
func ValidateIntOrPercent(v intstr.IntOrString, path *field.Path) field.ErrorList {
	errs := ValidateUnboundedIntOrPercent(v, path)
	if percent, ok := percentage(v); ok && percent > 100 {
		errs = append(errs, field.Invalid(path, v, "must not be greater than 100%"))
	}
	return errs
}

// ValidateUnboundedIntOrPercent requires a non-negative number or a percentage, which may be more
// than 100%.
func ValidateUnboundedIntOrPercent(v intstr.IntOrString, path *field.Path) field.ErrorList {
	if v.Type == intstr.Int {
		return apivalidation.ValidateNonnegativeField(int64(v.IntVal), path)
	}
	return rules.Invalid(path, v, validation.IsValidPercent(v.StrVal))
}

// IsZero reports whether v is 0 or 0%. A value that is neither a number nor a percentage counts as
// zero.
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
	// Atoi returns the largest int for a number that is out of range.
	percent, _ := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	return percent, true
}
