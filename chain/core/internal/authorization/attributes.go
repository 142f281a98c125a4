package authorization

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func validateSubject(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := validateAttributes(spec.ResourceAttributes, spec.NonResourceAttributes)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), spec.User,
			"at least one of user or group must be specified"))
	}
	return errs
}

// validateAttributes requires either resource or non-resource attributes.
func validateAttributes(
	r *authorizationv1.ResourceAttributes, n *authorizationv1.NonResourceAttributes,
) field.ErrorList {
	var errs field.ErrorList
	if (r == nil) == (n == nil) {
		errs = append(errs, field.Invalid(field.NewPath("spec"), n,
			"exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	if r != nil {
		errs = append(errs, validateSelectors(r)...)
	}
	return errs
}

// validateSelectors accepts unknown operators, since a client may be newer than the server.
func validateSelectors(r *authorizationv1.ResourceAttributes) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("spec", "resourceAttributes")
	if s := r.FieldSelector; s != nil {
		at := at.Child("fieldSelector")
		errs = append(errs, rawOrRequirements(s.RawSelector, len(s.Requirements), at)...)
		options := metavalidation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
		for i, requirement := range s.Requirements {
			errs = append(errs, metavalidation.ValidateFieldSelectorRequirement(requirement, options,
				at.Child("requirements").Index(i))...)
		}
	}
	if s := r.LabelSelector; s != nil {
		at := at.Child("labelSelector")
		errs = append(errs, rawOrRequirements(s.RawSelector, len(s.Requirements), at)...)
		options := metavalidation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
		for i, requirement := range s.Requirements {
			errs = append(errs, metavalidation.ValidateLabelSelectorRequirement(requirement, options,
				at.Child("requirements").Index(i))...)
		}
	}
	return errs
}

func rawOrRequirements(raw string, requirements int, at *field.Path) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{
			field.Invalid(at.Child("rawSelector"), raw, "may not be specified together with requirements"),
		}
	case raw == "" && requirements == 0:
		return field.ErrorList{
			field.Required(at.Child("requirements"), "must specify either requirements or rawSelector"),
		}
	}
	return nil
}

// emptyMetadata requires a review to have no metadata except managedFields, which the server itself
// sets.
func emptyMetadata(meta metav1.ObjectMeta, namespaced bool) field.ErrorList {
	meta.ManagedFields = nil
	if namespaced {
		meta.Namespace = ""
	}
	if equality.Semantic.DeepEqual(meta, metav1.ObjectMeta{}) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), meta, "must be empty")}
}

func sameNamespace(ctx context.Context, review *authorizationv1.LocalSubjectAccessReview) error {
	switch namespace := request.NamespaceValue(ctx); namespace {
	case "":
		return apierrors.NewBadRequest("a LocalSubjectAccessReview must be posted to a namespace")
	case review.Namespace:
		return nil
	default:
		return apierrors.NewBadRequest("metadata.namespace must match the namespace of the request, " +
			namespace)
	}
}

// resourceAttributes returns the attributes to authorize. It leaves out selector requirements that
// it cannot interpret and records an error. That is safe, because a requirement only ever narrows
// the request.
func resourceAttributes(
	u user.Info, r *authorizationv1.ResourceAttributes,
) authorizer.AttributesRecord {
	attributes := authorizer.AttributesRecord{
		User: u, Verb: r.Verb, Namespace: r.Namespace, APIGroup: r.Group, APIVersion: r.Version,
		Resource: r.Resource, Subresource: r.Subresource, Name: r.Name, ResourceRequest: true,
	}
	if attributes.APIVersion == "" {
		attributes.APIVersion = "*"
	}
	if s := r.FieldSelector; s != nil {
		attributes.FieldSelectorRequirements, attributes.FieldSelectorParsingErr = fieldRequirements(s)
	}
	if s := r.LabelSelector; s != nil {
		attributes.LabelSelectorRequirements, attributes.LabelSelectorParsingErr = labelRequirements(s)
	}
	return attributes
}

func fieldRequirements(s *authorizationv1.FieldSelectorAttributes) (fields.Requirements, error) {
	if s.RawSelector != "" {
		selector, err := fields.ParseSelector(s.RawSelector)
		if err != nil {
			return nil, err
		}
		return selector.Requirements(), nil
	}
	var list fields.Requirements
	var errs []error
	for _, r := range s.Requirements {
		operator := map[metav1.FieldSelectorOperator]selection.Operator{
			metav1.FieldSelectorOpIn:    selection.Equals,
			metav1.FieldSelectorOpNotIn: selection.NotEquals,
		}[r.Operator]
		if operator == "" || len(r.Values) != 1 {
			errs = append(errs, fmt.Errorf("unsupported field selector requirement %v", r))
			continue
		}
		list = append(list, fields.Requirement{Field: r.Key, Operator: operator, Value: r.Values[0]})
	}
	return list, errors.Join(errs...)
}

func labelRequirements(s *authorizationv1.LabelSelectorAttributes) (labels.Requirements, error) {
	if s.RawSelector != "" {
		return labels.ParseToRequirements(s.RawSelector)
	}
	var list labels.Requirements
	var errs []error
	for _, r := range s.Requirements {
		operator, known := map[metav1.LabelSelectorOperator]selection.Operator{
			metav1.LabelSelectorOpIn:           selection.In,
			metav1.LabelSelectorOpNotIn:        selection.NotIn,
			metav1.LabelSelectorOpExists:       selection.Exists,
			metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist,
		}[r.Operator]
		if !known {
			errs = append(errs, fmt.Errorf("unsupported label selector requirement %v", r))
			continue
		}
		requirement, err := labels.NewRequirement(r.Key, operator, r.Values)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, *requirement)
	}
	return list, errors.Join(errs...)
}

// evaluationError describes what went wrong while making a decision: the authorizer's error, and
// the selectors that were ignored.
func evaluationError(err error, a authorizer.Attributes) string {
	var parts []string
	if err != nil {
		parts = append(parts, err.Error())
	}
	ignored := func(selector string, requirements int, err error) {
		if err == nil {
			return
		}
		how := "ignored"
		if requirements > 0 {
			how = "partially ignored"
		}
		parts = append(parts, fmt.Sprintf("spec.resourceAttributes.%s %s due to parse error",
			selector, how))
	}
	ofFields, err := a.GetFieldSelector()
	ignored("fieldSelector", len(ofFields), err)
	ofLabels, err := a.GetLabelSelector()
	ignored("labelSelector", len(ofLabels), err)
	return strings.Join(parts, "; ")
}
