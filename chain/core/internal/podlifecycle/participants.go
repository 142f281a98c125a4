package podlifecycle

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
)

func noTarget(at *field.Path) *field.Error {
	return field.Invalid(at, field.OmitValueType{}, "must name a pod")
}

// validatePod checks a reference to a pod.
func validatePod(name, uid string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	} else {
		errs = append(errs, rules.Invalid(at.Child("name"), name,
			apivalidation.NameIsDNSSubdomain(name, false))...)
	}
	if uid == "" {
		return append(errs, field.Required(at.Child("uid"), ""))
	}
	return append(errs, validate.UUID(context.Background(), operation.Operation{},
		at.Child("uid"), &uid, nil)...)
}

// validateParticipant checks the name of a requester or a responder.
func validateParticipant(name string, at *field.Path) field.ErrorList {
	return validation.IsDomainPrefixedKey(at, name)
}

// validateIntent checks what a requester wants. It is generic because requests and evictions have
// different types for the intent.
func validateIntent[T ~string](intent T, at *field.Path) field.ErrorList {
	return oneOf(intent, at, "Eviction", "Withdrawn")
}

func oneOf[T ~string](value T, at *field.Path, values ...T) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(at, "")}
	case !slices.Contains(values, value):
		return field.ErrorList{field.NotSupported(at, value, values)}
	}
	return nil
}

// validateObservedGeneration checks that the observed generation never decreases.
func validateObservedGeneration(now, then *int64, status *field.Path) field.ErrorList {
	at := status.Child("observedGeneration")
	switch {
	case now == nil && then == nil:
		return nil
	case now == nil:
		return field.ErrorList{
			field.Invalid(at, field.OmitValueType{}, "may not be removed once it is set"),
		}
	case *now < 1:
		return field.ErrorList{field.Invalid(at, *now, "must be at least 1")}
	case then != nil && *now < *then:
		return field.ErrorList{field.Invalid(at, *now, "must not decrease")}
	}
	return nil
}

// duplicates returns an error for each item whose name an earlier item has.
func duplicates[T any](list []T, at *field.Path, name func(T) string) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, item := range list {
		if n := name(item); seen.Has(n) {
			errs = append(errs, field.Duplicate(at.Index(i), n))
		} else {
			seen.Insert(n)
		}
	}
	return errs
}
