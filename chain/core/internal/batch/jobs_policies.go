package batch

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
)

const (
	// maxRules is the maximum number of rules in a policy and of patterns in a rule.
	maxRules = 20
	// maxExitCodes is the maximum number of exit codes in a rule.
	maxExitCodes = 255
	// maxIndexesLength is the maximum length in bytes of a list of indexes.
	maxIndexesLength = 64 * 1024
)

var (
	failureActions = sets.New(batchv1.PodFailurePolicyActionCount,
		batchv1.PodFailurePolicyActionFailIndex, batchv1.PodFailurePolicyActionFailJob,
		batchv1.PodFailurePolicyActionIgnore)
	exitCodeOperators = sets.New(batchv1.PodFailurePolicyOnExitCodesOpIn,
		batchv1.PodFailurePolicyOnExitCodesOpNotIn)
	conditionStatuses = sets.New(corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)
)

func validateFailurePolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n := len(spec.PodFailurePolicy.Rules); n > maxRules {
		errs = append(errs, field.TooMany(path, n, maxRules))
	}
	containers := sets.New[string]()
	for _, c := range slices.Concat(spec.Template.Spec.InitContainers, spec.Template.Spec.Containers) {
		containers.Insert(c.Name)
	}
	for i := range spec.PodFailurePolicy.Rules {
		rule, at := &spec.PodFailurePolicy.Rules[i], path.Index(i)
		switch {
		case rule.Action == batchv1.PodFailurePolicyActionFailIndex && spec.BackoffLimitPerIndex == nil:
			errs = append(errs, field.Invalid(at.Child("action"), rule.Action,
				"requires backoffLimitPerIndex to be set"))
		default:
			errs = append(errs, validateOneOf(rule.Action, failureActions, at.Child("action"))...)
		}
		if rule.OnExitCodes != nil {
			errs = append(errs, validateExitCodes(rule.OnExitCodes, containers, at.Child("onExitCodes"))...)
		}
		errs = append(errs, validateConditionPatterns(rule.OnPodConditions,
			at.Child("onPodConditions"))...)
		if (rule.OnExitCodes != nil) == (len(rule.OnPodConditions) > 0) {
			errs = append(errs, field.Invalid(at, field.OmitValueType{},
				"must have either onExitCodes or onPodConditions"))
		}
	}
	return errs
}

// validateOneOf requires one of the known values.
func validateOneOf[T ~string](value T, known sets.Set[T], path *field.Path) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(path, fmt.Sprintf("must be one of %v", sets.List(known)))}
	case !known.Has(value):
		return field.ErrorList{field.NotSupported(path, value, sets.List(known))}
	}
	return nil
}

func validateExitCodes(
	r *batchv1.PodFailurePolicyOnExitCodesRequirement, containers sets.Set[string], path *field.Path,
) field.ErrorList {
	errs := validateOneOf(r.Operator, exitCodeOperators, path.Child("operator"))
	if r.ContainerName != nil && !containers.Has(*r.ContainerName) {
		errs = append(errs, field.Invalid(path.Child("containerName"), *r.ContainerName,
			"must be the name of a container in the template"))
	}
	at := path.Child("values")
	switch n := len(r.Values); {
	case n == 0:
		errs = append(errs, field.Invalid(at, r.Values, "must specify at least one exit code"))
	case n > maxExitCodes:
		errs = append(errs, field.TooMany(at, n, maxExitCodes))
	}
	seen := sets.New[int32]()
	for i, code := range r.Values {
		if code == 0 && r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn {
			errs = append(errs, field.Invalid(at.Index(i), code, "must not be 0 for the In operator"))
		}
		if seen.Has(code) {
			errs = append(errs, field.Duplicate(at.Index(i), code))
		}
		seen.Insert(code)
	}
	if !slices.IsSorted(r.Values) {
		errs = append(errs, field.Invalid(at, r.Values, "must be in ascending order"))
	}
	return errs
}

func validateConditionPatterns(
	patterns []batchv1.PodFailurePolicyOnPodConditionsPattern, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	if n := len(patterns); n > maxRules {
		errs = append(errs, field.TooMany(path, n, maxRules))
	}
	for i, p := range patterns {
		at := path.Index(i)
		errs = append(errs, rules.Invalid(at.Child("type"), p.Type,
			validation.IsQualifiedName(string(p.Type)))...)
		errs = append(errs, validateOneOf(p.Status, conditionStatuses, at.Child("status"))...)
	}
	return errs
}

func validateSuccessPolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch n := len(spec.SuccessPolicy.Rules); {
	case n == 0:
		errs = append(errs, field.Required(path, "must specify at least one rule"))
	case n > maxRules:
		errs = append(errs, field.TooMany(path, n, maxRules))
	}
	completions := ptr.Deref(spec.Completions, 0)
	for i, rule := range spec.SuccessPolicy.Rules {
		at := path.Index(i)
		if rule.SucceededCount == nil && rule.SucceededIndexes == nil {
			errs = append(errs, field.Required(at, "must specify succeededCount, succeededIndexes or both"))
		}
		limit, of := completions, "completions"
		if text := rule.SucceededIndexes; text != nil {
			if len(*text) > maxIndexesLength {
				errs = append(errs, field.TooLong(at.Child("succeededIndexes"), *text, maxIndexesLength))
			}
			indexes, err := parseIndexes(*text, completions)
			if err != nil {
				errs = append(errs, field.Invalid(at.Child("succeededIndexes"), *text, err.Error()))
			}
			limit, of = min(limit, indexes.count()), "succeededIndexes"
		}
		if n := rule.SucceededCount; n != nil {
			errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*n),
				at.Child("succeededCount"))...)
			if *n > limit {
				errs = append(errs, field.Invalid(at.Child("succeededCount"), *n,
					fmt.Sprintf("must be less than or equal to %d, the number of %s", limit, of)))
			}
		}
	}
	return errs
}
