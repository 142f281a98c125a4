// Package rules has validation that several API groups share.
package rules

import "k8s.io/apimachinery/pkg/util/validation/field"

// Invalid returns an error for each message about an invalid value.
func Invalid(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range messages {
		errs = append(errs, field.Invalid(path, value, msg))
	}
	return errs
}
