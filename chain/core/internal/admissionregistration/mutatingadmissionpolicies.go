package admissionregistration

import (
	"context"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"

	"github.com/kinproc/kinproc/chain/kind"
)

var patchTypes = sets.New(admissionv1.PatchTypeApplyConfiguration, admissionv1.PatchTypeJSONPatch)

// MutatingAdmissionPolicies declares mutatingadmissionpolicies. Unlike validating policies, they
// have no status.
func MutatingAdmissionPolicies(
	params ParamAccess,
) *kind.Kind[*admissionv1.MutatingAdmissionPolicy] {
	type T = *admissionv1.MutatingAdmissionPolicy
	return &kind.Kind[T]{
		Plural:        "mutatingadmissionpolicies",
		Singular:      "mutatingadmissionpolicy",
		Categories:    categories(),
		ClusterScoped: true,
		Versions: []kind.Version{
			kind.ServedAsSame[*admissionv1beta1.MutatingAdmissionPolicy, T](),
			kind.ServedAsSame[*admissionv1alpha1.MutatingAdmissionPolicy, T](),
		},
		Name: validateName,
		Default: func(p T) {
			setDefault(&p.Spec.FailurePolicy, admissionv1.Fail)
			defaultMatchResources(p.Spec.MatchConstraints)
		},
		Validate: func(ctx context.Context, p T) field.ErrorList {
			if errs := validateMutatingPolicy(p, nil); len(errs) > 0 {
				return errs
			}
			return params.kindChanged(ctx, p.Spec.ParamKind, nil)
		},
		ValidateUpdate: func(ctx context.Context, p, old T) field.ErrorList {
			if errs := validateMutatingPolicy(p, old); len(errs) > 0 {
				return errs
			}
			return params.kindChanged(ctx, p.Spec.ParamKind, old.Spec.ParamKind)
		},
		Table: policyTable("Mutations", "Number of mutations that the policy makes.",
			func(p T) (int, *admissionv1.ParamKind) {
				return len(p.Spec.Mutations), p.Spec.ParamKind
			}),
		Warnings:               warnings[T],
		Generation:             true,
		RequireResourceVersion: true,
		Quirks:                 kind.Quirks{NameOnUpdate: true, AnyFinalizers: true},
	}
}

// validateMutatingPolicy validates p. old is nil if p is new.
func validateMutatingPolicy(p, old *admissionv1.MutatingAdmissionPolicy) field.ErrorList {
	spec, at := &p.Spec, field.NewPath("spec")
	e := newExpressions(mutatingExpressionsOf(old), spec.ParamKind, spec.Variables)
	var errs field.ErrorList
	if spec.FailurePolicy == nil {
		errs = append(errs, field.Required(at.Child("failurePolicy"), ""))
	}
	errs = append(errs, oneOf(spec.FailurePolicy, failurePolicies, at.Child("failurePolicy"))...)
	errs = append(errs, validateParamKind(spec.ParamKind, at.Child("paramKind"))...)
	errs = append(errs, matchConstraints(spec.MatchConstraints, at.Child("matchConstraints"))...)
	errs = append(errs, mutable(spec.MatchConstraints, at.Child("matchConstraints"))...)
	if old == nil || !sameMatchConditions(spec.MatchConditions, old.Spec.MatchConditions,
		spec.ParamKind, old.Spec.ParamKind) {
		errs = append(errs, e.matchConditions(spec.MatchConditions, at.Child("matchConditions"))...)
	}
	for i, v := range spec.Variables {
		errs = append(errs, e.declare(v, at.Child("variables").Index(i))...)
	}
	if len(spec.Mutations) == 0 {
		errs = append(errs, field.Required(at.Child("mutations"), "must contain at least one mutation"))
	}
	for i := range spec.Mutations {
		errs = append(errs, validateMutation(e, &spec.Mutations[i], at.Child("mutations").Index(i))...)
	}
	if spec.ReinvocationPolicy == "" {
		return append(errs, field.Required(at.Child("reinvocationPolicy"), ""))
	}
	return append(errs, oneOf(&spec.ReinvocationPolicy, reinvocations,
		at.Child("reinvocationPolicy"))...)
}

func validateMutation(e *expressions, m *admissionv1.Mutation, at *field.Path) field.ErrorList {
	apply, jsonPatch := at.Child("applyConfiguration"), at.Child("jsonPatch")
	options := plugincel.OptionalVariableDeclarations{HasAuthorizer: true, HasPatchTypes: true}
	var errs field.ErrorList
	switch m.PatchType {
	case "":
		return field.ErrorList{field.Required(at.Child("patchType"), "")}
	case admissionv1.PatchTypeApplyConfiguration:
		switch {
		case m.ApplyConfiguration == nil:
			errs = append(errs, field.Required(apply,
				"must be specified when patchType is ApplyConfiguration"))
		case strings.TrimSpace(m.ApplyConfiguration.Expression) == "":
			errs = append(errs, field.Required(apply.Child("expression"), "must not be blank"))
		default:
			expression := &patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression}
			errs = append(errs, e.check(expression, options, apply.Child("expression"))...)
		}
		if m.JSONPatch != nil {
			errs = append(errs, field.Invalid(jsonPatch, m.JSONPatch,
				"may only be specified when patchType is JSONPatch"))
		}
	case admissionv1.PatchTypeJSONPatch:
		switch {
		case m.JSONPatch == nil:
			errs = append(errs, field.Required(jsonPatch, "must be specified when patchType is JSONPatch"))
		case strings.TrimSpace(m.JSONPatch.Expression) == "":
			errs = append(errs, field.Required(jsonPatch.Child("expression"), "must not be blank"))
		default:
			expression := &patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}
			errs = append(errs, e.check(expression, options, jsonPatch.Child("expression"))...)
		}
		if m.ApplyConfiguration != nil {
			errs = append(errs, field.Invalid(apply, m.ApplyConfiguration,
				"may only be specified when patchType is ApplyConfiguration"))
		}
	default:
		errs = append(errs, oneOf(&m.PatchType, patchTypes, at.Child("patchType"))...)
	}
	return errs
}

func mutatingExpressionsOf(p *admissionv1.MutatingAdmissionPolicy) sets.Set[string] {
	set := sets.New[string]()
	if p == nil {
		return set
	}
	for _, c := range p.Spec.MatchConditions {
		set.Insert(c.Expression)
	}
	for _, v := range p.Spec.Variables {
		set.Insert(v.Expression)
	}
	for _, m := range p.Spec.Mutations {
		if m.ApplyConfiguration != nil {
			set.Insert(m.ApplyConfiguration.Expression)
		}
		if m.JSONPatch != nil {
			set.Insert(m.JSONPatch.Expression)
		}
	}
	return set
}
