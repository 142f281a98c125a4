package apps

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules/podspec"
	"github.com/kinproc/kinproc/chain/core/internal/rules/workloads"
	"github.com/kinproc/kinproc/chain/kind"
)

// Field paths shared by all kinds of the group.
var (
	specPath     = field.NewPath("spec")
	selectorPath = specPath.Child("selector")
	templatePath = specPath.Child("template")
	statusPath   = field.NewPath("status")
)

// validateSelector validates the selector of a workload, which must not be empty. It returns the
// parsed selector, or nil if it cannot be parsed.
func validateSelector(selector *metav1.LabelSelector) (labels.Selector, field.ErrorList) {
	var errs field.ErrorList
	if selector == nil {
		errs = append(errs, field.Required(selectorPath,
			"must specify which pods belong to the workload"))
	} else {
		errs = append(errs, metav1validation.ValidateLabelSelector(selector,
			metav1validation.LabelSelectorValidationOptions{}, selectorPath)...)
		errs = append(errs, validateNotEmpty(selector)...)
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, append(errs, field.Invalid(selectorPath, selector, err.Error()))
	}
	return parsed, errs
}

func validateNotEmpty(selector *metav1.LabelSelector) field.ErrorList {
	if len(selector.MatchLabels)+len(selector.MatchExpressions) > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(selectorPath, selector, "must not be empty")}
}

// validateSelected validates the template of pods that always restart against a selector returned
// by validateSelector.
func validateSelected(selector labels.Selector, tmpl, old *corev1.PodTemplateSpec) field.ErrorList {
	var errs field.ErrorList
	if !selector.Empty() {
		errs = workloads.ValidateTemplateLabels(selector, tmpl, templatePath)
	}
	errs = append(errs, podspec.ValidateTemplate(tmpl, templatePath, podspec.OptionsFor(tmpl, old))...)
	return append(errs, workloads.ValidateEverlasting(tmpl, templatePath)...)
}

func validateSelectorUnchanged(selector, old *metav1.LabelSelector) field.ErrorList {
	return apivalidation.ValidateImmutableField(selector, old, selectorPath)
}

// wideColumns returns the columns for the cells of wideCells.
func wideColumns() []kind.Column {
	return []kind.Column{
		{Name: "Containers", Priority: 1, Description: "Names of the template's containers."},
		{Name: "Images", Priority: 1, Description: "Images of the template's containers."},
		{Name: "Selector", Priority: 1, Description: "Labels of the pods that belong to the workload."},
	}
}

func wideCells(tmpl *corev1.PodTemplateSpec, selector *metav1.LabelSelector) []any {
	names, images := podspec.ContainerCells(&tmpl.Spec)
	return []any{names, images, metav1.FormatLabelSelector(selector)}
}

// scaleSelector returns the selector in the string form of the scale subresource.
func scaleSelector(selector *metav1.LabelSelector) (string, error) {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return "", err
	}
	return parsed.String(), nil
}

// defaultTo points *p to value if *p is nil.
func defaultTo[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

// refuseNoNumber rejects an object whose annotation name, a numeric field in older versions, is not
// an integer.
func refuseNoNumber(ctx context.Context, obj metav1.Object, name string) error {
	value, ok := obj.GetAnnotations()[name]
	if !ok {
		return nil
	}
	if _, err := strconv.ParseInt(value, 10, 64); err != nil {
		return kind.Malformed(ctx, fmt.Errorf("annotation %s must be an integer: %w", name, err))
	}
	return nil
}
