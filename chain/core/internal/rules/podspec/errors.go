package podspec

import (
	"path"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules/volumesources"
)

// messages makes an invalid value's errors of what a check of its form has to say.
func messages(path *field.Path, value any, msgs []string) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range msgs {
		errs = append(errs, field.Invalid(path, value, msg))
	}
	return errs
}

// validateRelativePath checks that a path stays below where it is looked up, and does not take the names that start with "..", which
// kubelets use themselves.
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

// forbidAllBut forbids the fields of a struct that are set but for the allowed ones. The paths are kube-apiserver's: the names in Go with a
// small first letter.
func forbidAllBut(value any, path *field.Path, allowed ...string) field.ErrorList {
	var errs field.ErrorList
	v := reflect.ValueOf(value)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if !v.Field(i).IsZero() && !slices.Contains(allowed, name) {
			errs = append(errs, field.Forbidden(path.Child(strings.ToLower(name[:1])+name[1:]), "cannot be set here"))
		}
	}
	return errs
}
