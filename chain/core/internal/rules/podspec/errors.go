package podspec

import (
	"path"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules/volumesources"
)

// validateRelativePath requires a path that stays below its directory and does not use names that
// start with "..", which the kubelet uses itself.
func validateRelativePath(p string, at *field.Path) field.ErrorList {
	errs := validateDescendingPath(p, at)
	if strings.HasPrefix(p, "..") && !strings.HasPrefix(p, "../") {
		errs = append(errs, field.Invalid(at, p, "must not start with '..'"))
	}
	return errs
}

func validateDescendingPath(p string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if path.IsAbs(p) {
		errs = append(errs, field.Invalid(at, p, "must be a relative path"))
	}
	return append(errs, volumesources.ValidateNoBacksteps(p, at)...)
}

// forbidAllBut forbids all fields of a struct except the allowed ones. As in kube-apiserver, the
// paths are the Go field names with a lower-case first letter.
func forbidAllBut(value any, path *field.Path, allowed ...string) field.ErrorList {
	var errs field.ErrorList
	v := reflect.ValueOf(value)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if !v.Field(i).IsZero() && !slices.Contains(allowed, name) {
			errs = append(errs, field.Forbidden(path.Child(strings.ToLower(name[:1])+name[1:]),
				"cannot be set here"))
		}
	}
	return errs
}
