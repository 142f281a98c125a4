package admissionregistration

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind"
)

// MutatingAdmissionPolicyBindings declares mutatingadmissionpolicybindings.
func MutatingAdmissionPolicyBindings(
	params ParamAccess,
) *kind.Kind[*admissionv1.MutatingAdmissionPolicyBinding] {
	type T = *admissionv1.MutatingAdmissionPolicyBinding
	validate := func(
		ctx context.Context, b T, old *admissionv1.ParamRef, samePolicy bool,
	) field.ErrorList {
		at := field.NewPath("spec")
		errs := validateBinding(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources, at)
		errs = append(errs, mutable(b.Spec.MatchResources, at.Child("matchResources"))...)
		if len(errs) > 0 {
			return errs
		}
		return params.refChanged(ctx, b.Spec.ParamRef, old, samePolicy,
			paramKindOf(ctx, params.MutatingParamKind, b.Spec.PolicyName))
	}
	return &kind.Kind[T]{
		Plural:        "mutatingadmissionpolicybindings",
		Categories:    categories(),
		ClusterScoped: true,
		Versions: []kind.Version{
			kind.ServedAsSame[*admissionv1beta1.MutatingAdmissionPolicyBinding, T](),
			kind.ServedAsSame[*admissionv1alpha1.MutatingAdmissionPolicyBinding, T](),
		},
		Name:     validateName,
		Default:  func(b T) { defaultMatchResources(b.Spec.MatchResources) },
		Validate: func(ctx context.Context, b T) field.ErrorList { return validate(ctx, b, nil, false) },
		ValidateUpdate: func(ctx context.Context, b, old T) field.ErrorList {
			return validate(ctx, b, old.Spec.ParamRef, b.Spec.PolicyName == old.Spec.PolicyName)
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
