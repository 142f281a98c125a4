package kindtest

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Causes returns errors in the form "field reason", such as "spec.minutes Invalid". The reasons are
// those in the causes of a Status, without the prefix FieldValue. The list is sorted and has no
// duplicates, so that a test can compare it.
func Causes(errs field.ErrorList) []string {
	var causes []string
	for _, err := range errs {
		causes = append(causes, fmt.Sprintf("%s %s",
			err.Field, strings.TrimPrefix(string(err.Type), "FieldValue")))
	}
	slices.Sort(causes)
	return slices.Compact(causes)
}
