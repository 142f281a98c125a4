package kindtest

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Causes are errors as a Status has them, each "field reason" without the reason's prefix FieldValue: sorted, and each once.
func Causes(errs field.ErrorList) []string {
	var causes []string
	for _, err := range errs {
		causes = append(causes, fmt.Sprintf("%s %s", err.Field, strings.TrimPrefix(string(err.Type), "FieldValue")))
	}
	slices.Sort(causes)
	return slices.Compact(causes)
}
