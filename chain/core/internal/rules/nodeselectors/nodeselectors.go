package nodeselectors

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate checks a node selector. Values that are no label values can match no node, but were let through for long:
// allowInvalidValues is for where they still are.
func Validate(s *corev1.NodeSelector, allowInvalidValues bool, path *field.Path) field.ErrorList {
	terms := path.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		return field.ErrorList{field.Required(terms, "a node selector has one term at least")}
	}
	var errs field.ErrorList
	for i := range s.NodeSelectorTerms {
		errs = append(errs, ValidateTerm(&s.NodeSelectorTerms[i], allowInvalidValues, terms.Index(i))...)
	}
	return errs
}

// HasImpossibleValue says whether the selector, which may be nil, wants a label to have a value that no label can have.
func HasImpossibleValue(s *corev1.NodeSelector) bool {
	if s == nil {
		return false
	}
	for _, term := range s.NodeSelectorTerms {
		for _, requirement := range term.MatchExpressions {
			for _, value := range requirement.Values {
				if len(validation.IsValidLabelValue(value)) > 0 {
					return true
				}
			}
		}
	}
	return false
}

// ValidateTerm checks one term of a node selector.
func ValidateTerm(term *corev1.NodeSelectorTerm, allowInvalidValues bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range term.MatchExpressions {
		errs = append(errs, validateNodeLabelRequirement(&term.MatchExpressions[i], allowInvalidValues, path.Child("matchExpressions").Index(i))...)
	}
	for i := range term.MatchFields {
		errs = append(errs, validateNodeFieldRequirement(&term.MatchFields[i], path.Child("matchFields").Index(i))...)
	}
	return errs
}

func validateNodeLabelRequirement(r *corev1.NodeSelectorRequirement, allowInvalidValues bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	values := path.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(values, "the operators In and NotIn need values"))
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Forbidden(values, "the operators Exists and DoesNotExist take no values"))
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(values, "the operators Gt and Lt need one value"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "is no operator of node selectors"))
	}
	errs = append(errs, metav1validation.ValidateLabelName(r.Key, path.Child("key"))...)
	if !allowInvalidValues {
		for i, value := range r.Values {
			for _, msg := range validation.IsValidLabelValue(value) {
				errs = append(errs, field.Invalid(values.Index(i), value, msg))
			}
		}
	}
	return errs
}

// validateNodeFieldRequirement checks a requirement of a field of nodes, of which there is one that can be selected by: the name.
func validateNodeFieldRequirement(r *corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(path.Child("values"), "a node field is compared with one value"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "node fields know the operators In and NotIn only"))
	}
	if r.Key != metav1.ObjectNameField {
		return append(errs, field.Invalid(path.Child("key"), r.Key, "is no field that nodes are selected by"))
	}
	for i, value := range r.Values {
		for _, msg := range apivalidation.NameIsDNSSubdomain(value, false) {
			errs = append(errs, field.Invalid(path.Child("values").Index(i), value, msg))
		}
	}
	return errs
}

// deprecatedNodeLabels are labels of nodes that have a successor.
var deprecatedNodeLabels = map[string]string{
	corev1.LabelFailureDomainBetaRegion: "deprecated since v1.17, replaced by " + corev1.LabelTopologyRegion,
	corev1.LabelFailureDomainBetaZone:   "deprecated since v1.17, replaced by " + corev1.LabelTopologyZone,
	corev1.LabelInstanceType:            "deprecated since v1.17, replaced by " + corev1.LabelInstanceTypeStable,
	"beta.kubernetes.io/arch":           "deprecated since v1.14, replaced by " + corev1.LabelArchStable,
	"beta.kubernetes.io/os":             "deprecated since v1.14, replaced by " + corev1.LabelOSStable,
}

// DeprecatedLabel says what is wrong with a label key of nodes that has had its day; ok is false for others.
func DeprecatedLabel(key string) (advice string, ok bool) {
	advice, ok = deprecatedNodeLabels[key]
	return advice, ok
}

// TermWarnings are about deprecated labels and, with checkValues, about values that are no label values.
func TermWarnings(term *corev1.NodeSelectorTerm, checkValues bool, path *field.Path) []string {
	var warnings []string
	for i, r := range term.MatchExpressions {
		at := path.Child("matchExpressions").Index(i)
		if advice, ok := DeprecatedLabel(r.Key); ok {
			warnings = append(warnings, fmt.Sprintf("%s: %s: %s", at.Child("key"), r.Key, advice))
		}
		if !checkValues {
			continue
		}
		for j, value := range r.Values {
			for _, msg := range validation.IsValidLabelValue(value) {
				warnings = append(warnings, fmt.Sprintf("%s: %q matches no label: %s", at.Child("values").Index(j), value, msg))
			}
		}
	}
	return warnings
}

// LabelSelectorWarnings are about deprecated labels of nodes in a label selector, such as that of a storage topology.
func LabelSelectorWarnings(s *metav1.LabelSelector, path *field.Path) []string {
	if s == nil {
		return nil
	}
	var warnings []string
	for i, r := range s.MatchExpressions {
		if advice, ok := DeprecatedLabel(r.Key); ok {
			warnings = append(warnings, fmt.Sprintf("%s: %s: %s", path.Child("matchExpressions").Index(i).Child("key"), r.Key, advice))
		}
	}
	for _, key := range sets.List(sets.KeySet(s.MatchLabels)) {
		if advice, ok := DeprecatedLabel(key); ok {
			warnings = append(warnings, fmt.Sprintf("%s: %s", path.Child("matchLabels").Key(key), advice))
		}
	}
	return warnings
}
