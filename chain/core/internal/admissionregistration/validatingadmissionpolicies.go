package admissionregistration

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/client-go/util/jsonpath"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/kind"
)

const (
	maxAuditAnnotations     = 20
	maxAuditValueExpression = 5 << 10
	lineBreaks              = "\n\r"
)

// policyReasons does not contain Unauthorized, which is documented in the API but rejected by
// kube-apiserver.
var policyReasons = sets.New(metav1.StatusReasonForbidden, metav1.StatusReasonInvalid,
	metav1.StatusReasonRequestEntityTooLarge)

// ValidatingAdmissionPolicies declares validatingadmissionpolicies.
func ValidatingAdmissionPolicies(
	params ParamAccess,
) *kind.Kind[*admissionv1.ValidatingAdmissionPolicy] {
	type T = *admissionv1.ValidatingAdmissionPolicy
	return &kind.Kind[T]{
		Plural:        "validatingadmissionpolicies",
		Singular:      "validatingadmissionpolicy",
		Categories:    categories(),
		ClusterScoped: true,
		Name:          validateName,
		Default: func(p T) {
			setDefault(&p.Spec.FailurePolicy, admissionv1.Fail)
			defaultMatchResources(p.Spec.MatchConstraints)
		},
		Validate: func(ctx context.Context, p T) field.ErrorList {
			if errs := validateValidatingPolicy(p, nil); len(errs) > 0 {
				return errs
			}
			return params.kindChanged(ctx, p.Spec.ParamKind, nil)
		},
		ValidateUpdate: func(ctx context.Context, p, old T) field.ErrorList {
			if errs := validateValidatingPolicy(p, old); len(errs) > 0 {
				return errs
			}
			return params.kindChanged(ctx, p.Spec.ParamKind, old.Spec.ParamKind)
		},
		Table: policyTable("Validations", "Number of validations that the policy makes.",
			func(p T) (int, *admissionv1.ParamKind) {
				return len(p.Spec.Validations), p.Spec.ParamKind
			}),
		Warnings: warnings[T],
		Status: &kind.Status[T]{
			Prepare:     func(_ context.Context, p, old T) { metav1.ResetObjectMetaForStatus(p, old) },
			Validate:    validateValidatingPolicyStatus,
			ResetFields: []string{"metadata", "spec"},
		},
		Generation:             true,
		RequireResourceVersion: true,
		Quirks:                 kind.Quirks{NameOnUpdate: true, AnyFinalizers: true},
	}
}

func policyTable[T kind.Object](
	what, description string, of func(T) (int, *admissionv1.ParamKind),
) kind.Table[T] {
	return kind.Table[T]{
		Columns: []kind.Column{
			kind.NameColumn(),
			{Name: what, Type: "integer", Description: description},
			{Name: "ParamKind", Description: "Kind of the objects that parametrize the policy."},
			kind.AgeColumn(),
		},
		Row: func(p T) []any {
			count, paramKind := of(p)
			params := "<unset>"
			if paramKind != nil {
				params = paramKind.APIVersion + "/" + paramKind.Kind
			}
			return []any{p.GetName(), int64(count), params, kind.Age(p)}
		},
	}
}

// validateValidatingPolicy validates p. old is nil if p is new.
func validateValidatingPolicy(p, old *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	spec, at := &p.Spec, field.NewPath("spec")
	e := newExpressions(expressionsOf(old), spec.ParamKind, spec.Variables)
	var errs field.ErrorList
	if spec.FailurePolicy == nil {
		errs = append(errs, field.Required(at.Child("failurePolicy"), ""))
	}
	errs = append(errs, oneOf(spec.FailurePolicy, failurePolicies, at.Child("failurePolicy"))...)
	errs = append(errs, validateParamKind(spec.ParamKind, at.Child("paramKind"))...)
	errs = append(errs, matchConstraints(spec.MatchConstraints, at.Child("matchConstraints"))...)
	if old == nil || !sameMatchConditions(spec.MatchConditions, old.Spec.MatchConditions,
		spec.ParamKind, old.Spec.ParamKind) {
		errs = append(errs, e.matchConditions(spec.MatchConditions, at.Child("matchConditions"))...)
	}
	for i, v := range spec.Variables {
		errs = append(errs, e.declare(v, at.Child("variables").Index(i))...)
	}
	if len(spec.Validations) == 0 && len(spec.AuditAnnotations) == 0 {
		const neither = "must specify at least one of validations and auditAnnotations"
		return append(errs, field.Required(at.Child("validations"), neither),
			field.Required(at.Child("auditAnnotations"), neither))
	}
	for i := range spec.Validations {
		errs = append(errs, validateValidation(e, &spec.Validations[i],
			at.Child("validations").Index(i))...)
	}
	return append(errs, validateAuditAnnotations(e, p, at.Child("auditAnnotations"))...)
}

// sameMatchConditions reports whether the conditions and the parameter kind are unchanged.
func sameMatchConditions(
	conditions, old []admissionv1.MatchCondition, kind, oldKind *admissionv1.ParamKind,
) bool {
	return equality.Semantic.DeepEqual(conditions, old) && equality.Semantic.DeepEqual(kind, oldKind)
}

func expressionsOf(p *admissionv1.ValidatingAdmissionPolicy) sets.Set[string] {
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
	for _, v := range p.Spec.Validations {
		set.Insert(v.Expression, v.MessageExpression)
	}
	for _, a := range p.Spec.AuditAnnotations {
		set.Insert(a.ValueExpression)
	}
	return set
}

func validateValidation(e *expressions, v *admissionv1.Validation, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	expression, message := strings.TrimSpace(v.Expression), strings.TrimSpace(v.Message)
	if expression == "" {
		errs = append(errs, field.Required(at.Child("expression"), "must not be blank"))
	} else {
		condition := &validating.ValidationCondition{
			Expression: v.Expression,
			Message:    v.Message,
			Reason:     v.Reason,
		}
		errs = append(errs, e.check(condition,
			plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, at.Child("expression"))...)
	}

	if v.MessageExpression != "" {
		if strings.TrimSpace(v.MessageExpression) == "" {
			errs = append(errs, field.Invalid(at.Child("messageExpression"),
				v.MessageExpression, "must not be blank"))
		} else {
			condition := &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
			errs = append(errs, e.check(condition, plugincel.OptionalVariableDeclarations{},
				at.Child("messageExpression"))...)
		}
	}

	switch {
	case v.Message != "" && message == "":
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "must not be blank"))
	case strings.ContainsAny(message, lineBreaks):
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "must be a single line"))
	}
	return append(errs, oneOf(v.Reason, policyReasons, at.Child("reason"))...)
}

func validateAuditAnnotations(
	e *expressions, p *admissionv1.ValidatingAdmissionPolicy, at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	list := p.Spec.AuditAnnotations
	if len(list) > maxAuditAnnotations {
		errs = append(errs, field.Invalid(at, list,
			fmt.Sprintf("must have at most %d entries", maxAuditAnnotations)))
	}
	keys := sets.New[string]()
	for i, a := range list {
		key, value := at.Index(i).Child("key"), at.Index(i).Child("valueExpression")
		if p.Name == "" {
			errs = append(errs, field.Invalid(key, a.Key, "requires the policy to have a name"))
		} else {
			full := p.Name + "/" + a.Key
			errs = append(errs, rules.Invalid(key, full, validation.IsQualifiedName(full))...)
		}
		trimmed := strings.TrimSpace(a.ValueExpression)
		switch {
		case trimmed == "":
			errs = append(errs, field.Required(value, "must not be blank"))
		case len(trimmed) > maxAuditValueExpression:
			// kube-apiserver reports this as Required too.
			errs = append(errs, field.Required(value,
				fmt.Sprintf("must be at most %d bytes", maxAuditValueExpression)))
		default:
			condition := &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression}
			errs = append(errs, e.check(condition,
				plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, value)...)
		}
		if keys.Has(a.Key) {
			errs = append(errs, field.Duplicate(key, a.Key))
		}
		keys.Insert(a.Key)
	}
	return errs
}

func validateValidatingPolicyStatus(
	_ context.Context, p, _ *admissionv1.ValidatingAdmissionPolicy,
) field.ErrorList {
	at := field.NewPath("status")
	errs := metavalidation.ValidateConditions(p.Status.Conditions, at.Child("conditions"))
	if p.Status.TypeChecking == nil {
		return errs
	}
	for i, w := range p.Status.TypeChecking.ExpressionWarnings {
		at := at.Child("typeChecking", "expressionWarnings").Index(i)
		if w.Warning == "" {
			errs = append(errs, field.Required(at.Child("warning"), ""))
		}
		ref := strings.TrimSpace(w.FieldRef)
		if ref == "" {
			errs = append(errs, field.Required(at.Child("fieldRef"), ""))
		} else if err := jsonpath.New("fieldRef").Parse("{" + ref + "}"); err != nil {
			errs = append(errs, field.Invalid(at.Child("fieldRef"), ref, err.Error()))
		}
	}
	return errs
}
