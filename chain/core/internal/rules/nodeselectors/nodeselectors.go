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

	"github.com/kinproc/kinproc/chain/core/internal/rules"
)

// Validate validates a node selector. allowInvalidValues allows values that are not valid label
// values: they match no node, but they were accepted for a long time and may still be stored.
func Validate(s *corev1.NodeSelector, allowInvalidValues bool, path *field.Path) field.ErrorList {
	terms := path.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		return field.ErrorList{field.Required(terms, "must have at least one node selector term")}
	}
	var errs field.ErrorList
	for i := range s.NodeSelectorTerms {
		errs = append(errs, ValidateTerm(&s.NodeSelectorTerms[i], allowInvalidValues, terms.Index(i))...)
	}
	return errs
}

// HasImpossibleValue reports whether the selector, which may be nil, contains a value that no label
// can have.
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

// ValidateTerm validates one term of a node selector.
func ValidateTerm(
	term *corev1.NodeSelectorTerm, allowInvalidValues bool, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	for i := range term.MatchExpressions {
		errs = append(errs, validateNodeLabelRequirement(&term.MatchExpressions[i], allowInvalidValues,
			path.Child("matchExpressions").Index(i))...)
	}
	for i := range term.MatchFields {
		errs = append(errs, validateNodeFieldRequirement(&term.MatchFields[i],
			path.Child("matchFields").Index(i))...)
	}
	return errs
}

func validateNodeLabelRequirement(
	r *corev1.NodeSelectorRequirement, allowInvalidValues bool, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	values := path.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(values,
				"must be specified when `operator` is 'In' or 'NotIn'"))
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Forbidden(values,
				"may not be specified when operator is Exists or DoesNotExist"))
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(values, "must be a single value when operator is Gt or Lt"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator,
			"is not a valid node selector operator"))
	}
	errs = append(errs, metav1validation.ValidateLabelName(r.Key, path.Child("key"))...)
	if !allowInvalidValues {
		for i, value := range r.Values {
			errs = append(errs, rules.Invalid(values.Index(i), value,
				validation.IsValidLabelValue(value))...)
		}
	}
	return errs
}

// validateNodeFieldRequirement validates a requirement on a node field. The name is the only field
// that can be selected by.
func validateNodeFieldRequirement(
	r *corev1.NodeSelectorRequirement, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(path.Child("values"),
				"must be a single value for a node field"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator,
			"must be In or NotIn for a node field"))
	}
	if r.Key != metav1.ObjectNameField {
		return append(errs, field.Invalid(path.Child("key"), r.Key,
			"is not a node field that can be selected by"))
	}
	for i, value := range r.Values {
		errs = append(errs, rules.Invalid(path.Child("values").Index(i), value,
			apivalidation.NameIsDNSSubdomain(value, false))...)
	}
	return errs
}

// deprecatedNodeLabels maps deprecated node labels to advice, with which clients compare.
var deprecatedNodeLabels = map[string]string{
	corev1.LabelFailureDomainBetaRegion: since("v1.17") + use(corev1.LabelTopologyRegion),
	corev1.LabelFailureDomainBetaZone:   since("v1.17") + use(corev1.LabelTopologyZone),
	corev1.LabelInstanceType:            since("v1.17") + use(corev1.LabelInstanceTypeStable),
	"beta.kubernetes.io/arch":           since("v1.14") + use(corev1.LabelArchStable),
	"beta.kubernetes.io/os":             since("v1.14") + use(corev1.LabelOSStable),
	"app.kubernetes.io/created-by":      "deprecated since v1.9",
	"node-role.kubernetes.io/master":    use("node-role.kubernetes.io/control-plane"),
	"scheduler.alpha.kubernetes.io/preferAvoidPods": since("v1.22") +
		"use Taints and Tolerations instead",
}

func since(version string) string { return "deprecated since " + version + "; " }

func use(label string) string { return fmt.Sprintf("use %q instead", label) }

// DeprecatedLabel returns advice about a deprecated node label. ok is false if the label is not
// deprecated.
func DeprecatedLabel(key string) (advice string, ok bool) {
	advice, ok = deprecatedNodeLabels[key]
	return advice, ok
}

// TermWarnings returns warnings about deprecated labels and, with checkValues, about values that
// are not valid label values.
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
				warnings = append(warnings, fmt.Sprintf("%s: %q cannot match any label: %s",
					at.Child("values").Index(j), value, msg))
			}
		}
	}
	return warnings
}

// LabelSelectorWarnings returns warnings about deprecated node labels in a label selector, such as
// the node topology of a storage capacity.
func LabelSelectorWarnings(s *metav1.LabelSelector, path *field.Path) []string {
	if s == nil {
		return nil
	}
	var warnings []string
	for i, r := range s.MatchExpressions {
		if advice, ok := DeprecatedLabel(r.Key); ok {
			warnings = append(warnings, fmt.Sprintf("%s: %s: %s",
				path.Child("matchExpressions").Index(i).Child("key"), r.Key, advice))
		}
	}
	for _, key := range sets.List(sets.KeySet(s.MatchLabels)) {
		if advice, ok := DeprecatedLabel(key); ok {
			warnings = append(warnings, fmt.Sprintf("%s: %s", path.Child("matchLabels").Key(key), advice))
		}
	}
	return warnings
}
