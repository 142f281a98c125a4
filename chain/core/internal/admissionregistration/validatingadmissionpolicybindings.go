package admissionregistration

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/kind"
)

var validationActions = sets.New(admissionv1.Audit, admissionv1.Deny, admissionv1.Warn)

// ValidatingAdmissionPolicyBindings declares validatingadmissionpolicybindings.
func ValidatingAdmissionPolicyBindings(
	params ParamAccess,
) *kind.Kind[*admissionv1.ValidatingAdmissionPolicyBinding] {
	type T = *admissionv1.ValidatingAdmissionPolicyBinding
	authorized := func(
		ctx context.Context, b T, old *admissionv1.ParamRef, samePolicy bool,
	) field.ErrorList {
		return params.refChanged(ctx, b.Spec.ParamRef, old, samePolicy,
			paramKindOf(ctx, params.ValidatingParamKind, b.Spec.PolicyName))
	}
	return &kind.Kind[T]{
		Plural:        "validatingadmissionpolicybindings",
		Categories:    categories(),
		ClusterScoped: true,
		Name:          validateName,
		Default:       func(b T) { defaultMatchResources(b.Spec.MatchResources) },
		Validate: func(ctx context.Context, b T) field.ErrorList {
			if errs := validateValidatingBinding(b); len(errs) > 0 {
				return errs
			}
			return authorized(ctx, b, nil, false)
		},
		ValidateUpdate: func(ctx context.Context, b, old T) field.ErrorList {
			if errs := validateValidatingBinding(b); len(errs) > 0 {
				return errs
			}
			return authorized(ctx, b, old.Spec.ParamRef, b.Spec.PolicyName == old.Spec.PolicyName)
		},
		Table: bindingTable(func(b T) (string, *admissionv1.ParamRef) {
			return b.Spec.PolicyName, b.Spec.ParamRef
		}),
		Warnings:               warnings[T],
		Generation:             true,
		RequireResourceVersion: true,
		Quirks:                 kind.Quirks{NameOnUpdate: true, AnyFinalizers: true},
	}
}

// paramKindOf returns a function that looks up the parameter kind of a policy.
func paramKindOf(
	ctx context.Context, get func(context.Context, string) (*admissionv1.ParamKind, error),
	policy string,
) func() *admissionv1.ParamKind {
	return func() *admissionv1.ParamKind {
		if get == nil {
			return nil
		}
		k, err := get(ctx, policy)
		if err != nil {
			return nil // use the strictest check, since a binding is often created before its policy
		}
		return k
	}
}

func bindingTable[T kind.Object](of func(T) (string, *admissionv1.ParamRef)) kind.Table[T] {
	return kind.Table[T]{
		Columns: []kind.Column{
			kind.NameColumn(),
			{Name: "PolicyName", Description: "Policy that is bound."},
			{Name: "ParamRef", Description: "Parameters of the policy."},
			kind.AgeColumn(),
		},
		Row: func(b T) []any {
			policy, ref := of(b)
			params := "<unset>"
			switch {
			case ref == nil:
			case ref.Name == "" && ref.Selector != nil:
				params = ref.Selector.String()
			case ref.Name != "" && ref.Namespace != "":
				params = ref.Namespace + "/" + ref.Name
			case ref.Name != "":
				params = "*/" + ref.Name
			}
			return []any{b.GetName(), policy, params, kind.Age(b)}
		},
	}
}

func validateValidatingBinding(b *admissionv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	at := field.NewPath("spec")
	errs := validateBinding(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources, at)
	at = at.Child("validationActions")
	if len(b.Spec.ValidationActions) == 0 {
		return append(errs, field.Required(at, "at least one validation action is required"))
	}
	seen := sets.New[admissionv1.ValidationAction]()
	for i, action := range b.Spec.ValidationActions {
		errs = append(errs, oneOf(&action, validationActions, at.Index(i))...)
		if seen.Has(action) {
			errs = append(errs, field.Duplicate(at.Index(i), action))
		}
		seen.Insert(action)
	}
	if seen.HasAll(admissionv1.Deny, admissionv1.Warn) {
		errs = append(errs, field.Invalid(at, b.Spec.ValidationActions,
			"must not contain both Deny and Warn, which would report the same failure to the client twice"))
	}
	return errs
}

func validateBinding(
	policy string, ref *admissionv1.ParamRef, match *admissionv1.MatchResources, at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	if policy == "" {
		errs = append(errs, field.Required(at.Child("policyName"), ""))
	} else {
		errs = append(errs, rules.Invalid(at.Child("policyName"), policy,
			apivalidation.NameIsDNSSubdomain(policy, false))...)
	}
	errs = append(errs, validateParamRef(ref, at.Child("paramRef"))...)
	return append(errs, matchResources(match, at.Child("matchResources"))...)
}
