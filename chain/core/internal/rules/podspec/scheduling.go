package podspec

import (
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/nodeselectors"
)

func validateAffinity(a *corev1.Affinity, path *field.Path, opts Options) field.ErrorList {
	if a == nil {
		return nil
	}
	var errs field.ErrorList
	if a.NodeAffinity != nil {
		errs = append(errs, validateNodeAffinity(a.NodeAffinity, path.Child("nodeAffinity"), opts)...)
	}
	if p := a.PodAffinity; p != nil {
		errs = append(errs, validatePodTerms(p.RequiredDuringSchedulingIgnoredDuringExecution,
			p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"), opts)...)
	}
	if p := a.PodAntiAffinity; p != nil {
		errs = append(errs, validatePodTerms(p.RequiredDuringSchedulingIgnoredDuringExecution,
			p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"), opts)...)
	}
	return errs
}

func validateNodeAffinity(a *corev1.NodeAffinity, path *field.Path, opts Options) field.ErrorList {
	var errs field.ErrorList
	if a.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		errs = append(errs, nodeselectors.Validate(a.RequiredDuringSchedulingIgnoredDuringExecution,
			opts.invalidNodeAffinity, path.Child("requiredDuringSchedulingIgnoredDuringExecution"))...)
	}
	for i, term := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		at := path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		errs = append(errs, validateWeight(term.Weight, at)...)
		errs = append(errs, nodeselectors.ValidateTerm(&term.Preference, true, at.Child("preference"))...)
	}
	return errs
}

func validateWeight(weight int32, path *field.Path) field.ErrorList {
	if weight < 1 || weight > 100 {
		return field.ErrorList{field.Invalid(path.Child("weight"), weight, "must be between 1 and 100")}
	}
	return nil
}

func validatePodTerms(
	required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, path *field.Path,
	opts Options,
) field.ErrorList {
	var errs field.ErrorList
	for i := range required {
		errs = append(errs, validatePodTerm(&required[i],
			path.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i), opts)...)
	}
	for i := range preferred {
		at := path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		errs = append(errs, validateWeight(preferred[i].Weight, at)...)
		errs = append(errs, validatePodTerm(&preferred[i].PodAffinityTerm,
			at.Child("podAffinityTerm"), opts)...)
	}
	return errs
}

func validatePodTerm(t *corev1.PodAffinityTerm, path *field.Path, opts Options) field.ErrorList {
	errs := validateSelector(t.LabelSelector, opts.invalidSelectors, path.Child("labelSelector"))
	errs = append(errs, validateSelector(t.NamespaceSelector, opts.invalidSelectors,
		path.Child("namespaceSelector"))...)
	for _, namespace := range t.Namespaces {
		// As in kube-apiserver, the path has the singular and no index.
		errs = append(errs, rules.Invalid(path.Child("namespace"), namespace,
			apivalidation.ValidateNamespaceName(namespace, false))...)
	}
	errs = append(errs, validateAffinityKeys(t, path)...)
	if t.TopologyKey == "" {
		errs = append(errs, field.Required(path.Child("topologyKey"), ""))
	}
	return append(errs, metav1validation.ValidateLabelName(t.TopologyKey,
		path.Child("topologyKey"))...)
}

// validateAffinityKeys validates matchLabelKeys and mismatchLabelKeys (KEP-3633) of the term at
// path.
func validateAffinityKeys(t *corev1.PodAffinityTerm, path *field.Path) field.ErrorList {
	errs := validateLabelKeys(t.MatchLabelKeys, t.LabelSelector, path.Child("matchLabelKeys"))
	errs = append(errs, validateLabelKeys(t.MismatchLabelKeys, t.LabelSelector,
		path.Child("mismatchLabelKeys"))...)
	errs = append(errs, validateMergedKeys(t.MatchLabelKeys, t.LabelSelector, path)...)
	mismatch := sets.New(t.MismatchLabelKeys...)
	for i, key := range t.MatchLabelKeys {
		if mismatch.Has(key) {
			errs = append(errs, field.Invalid(path.Child("matchLabelKeys").Index(i), key,
				"must not be in both matchLabelKeys and mismatchLabelKeys"))
		}
	}
	return errs
}

func validateLabelKeys(
	keys []string, selector *metav1.LabelSelector, path *field.Path,
) field.ErrorList {
	if len(keys) > 0 && selector == nil {
		return field.ErrorList{field.Forbidden(path, "may not be set without labelSelector")}
	}
	var errs field.ErrorList
	for i, key := range keys {
		errs = append(errs, metav1validation.ValidateLabelName(key, path.Index(i))...)
	}
	return errs
}

// validateMergedKeys rejects keys that the label selector already selects by. The registry has
// merged each key into the selector as a requirement by now, so a key that is found twice is wrong.
// As in kube-apiserver, the paths lack the name of the list.
func validateMergedKeys(
	keys []string, selector *metav1.LabelSelector, path *field.Path,
) field.ErrorList {
	if selector == nil {
		return nil
	}
	var errs field.ErrorList
	seen := sets.KeySet(selector.MatchLabels)
	index := map[string]int{} // the last index of a duplicate key counts
	for i, key := range keys {
		index[key] = i
	}
	for _, r := range selector.MatchExpressions {
		if i, ok := index[r.Key]; ok && seen.Has(r.Key) {
			errs = append(errs, field.Invalid(path.Index(i), r.Key,
				"must not be in both matchLabelKeys and labelSelector"))
		}
		seen.Insert(r.Key)
	}
	return errs
}

func validateSelector(s *metav1.LabelSelector, anyValue bool, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s,
		metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: anyValue}, path)
}

func validateSpreadConstraints(
	list []corev1.TopologySpreadConstraint, path *field.Path, opts Options,
) field.ErrorList {
	var errs field.ErrorList
	type what struct {
		key  string
		when corev1.UnsatisfiableConstraintAction
	}
	last := map[what]int{}
	for i, c := range list {
		last[what{c.TopologyKey, c.WhenUnsatisfiable}] = i
	}
	for i, c := range list {
		at := path.Index(i)
		if c.MaxSkew <= 0 {
			errs = append(errs, field.Invalid(at.Child("maxSkew"), c.MaxSkew, "must be greater than zero"))
		}
		errs = append(errs, required(at.Child("topologyKey"), c.TopologyKey)...)
		errs = append(errs, supported(at.Child("whenUnsatisfiable"), c.WhenUnsatisfiable,
			corev1.DoNotSchedule, corev1.ScheduleAnyway)...)
		if last[what{c.TopologyKey, c.WhenUnsatisfiable}] > i { // it is repeated
			errs = append(errs, field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"),
				c.TopologyKey+", "+string(c.WhenUnsatisfiable)))
		}
		if c.MinDomains != nil {
			if *c.MinDomains <= 0 {
				errs = append(errs, field.Invalid(at.Child("minDomains"), *c.MinDomains,
					"must be greater than zero"))
			}
			if c.WhenUnsatisfiable != corev1.DoNotSchedule {
				errs = append(errs, field.Invalid(at.Child("minDomains"), *c.MinDomains,
					"may only be set when whenUnsatisfiable is DoNotSchedule"))
			}
		}
		for name, policy := range map[string]*corev1.NodeInclusionPolicy{
			"nodeAffinityPolicy": c.NodeAffinityPolicy,
			"nodeTaintsPolicy":   c.NodeTaintsPolicy,
		} {
			if policy != nil {
				errs = append(errs, supported(at.Child(name), *policy, corev1.NodeInclusionPolicyIgnore,
					corev1.NodeInclusionPolicyHonor)...)
			}
		}
		errs = append(errs, validateSpreadKeys(&c, at, opts.legacySpreadKeys)...)
		if !opts.invalidSpreadSelectors {
			errs = append(errs, validateSelector(c.LabelSelector, false, at.Child("labelSelector"))...)
		}
	}
	return errs
}

// validateSpreadKeys validates matchLabelKeys of the constraint at path (KEP-3243). With legacy, it
// applies the rule from before 1.34, when the registry did not merge the keys into the selector.
func validateSpreadKeys(
	c *corev1.TopologySpreadConstraint, path *field.Path, legacy bool,
) field.ErrorList {
	keys := path.Child("matchLabelKeys")
	errs := validateLabelKeys(c.MatchLabelKeys, c.LabelSelector, keys)
	if !legacy {
		return append(errs, validateMergedKeys(c.MatchLabelKeys, c.LabelSelector, path)...)
	}
	if c.LabelSelector == nil {
		return errs
	}
	selected := sets.KeySet(c.LabelSelector.MatchLabels)
	for _, r := range c.LabelSelector.MatchExpressions {
		selected.Insert(r.Key)
	}
	for i, key := range c.MatchLabelKeys {
		if selected.Has(key) {
			errs = append(errs, field.Invalid(keys.Index(i), key,
				"must not be in both matchLabelKeys and labelSelector"))
		}
	}
	return errs
}

func validateSchedulingGroup(group *corev1.PodSchedulingGroup, path *field.Path) field.ErrorList {
	if group == nil {
		return nil
	}
	at := path.Child("podGroupName")
	if group.PodGroupName == nil {
		return field.ErrorList{field.Invalid(at, "", "must specify the name of the group")}
	}
	return rules.Invalid(at, *group.PodGroupName,
		apivalidation.NameIsDNSSubdomain(*group.PodGroupName, false))
}

// ValidateTolerations validates a list of tolerations, such as those that a runtime class adds to
// pods.
func ValidateTolerations(list []corev1.Toleration, path *field.Path, opts Options) field.ErrorList {
	var errs field.ErrorList
	for i, t := range list {
		at := path.Index(i)
		if t.Key != "" {
			errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		} else if t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator,
				"operator must be Exists when `key` is empty, which means \"match all values and all "+
					"keys\""))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect,
				"effect must be 'NoExecute' when `tolerationSeconds` is set"))
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			errs = append(errs, rules.Invalid(at.Child("operator"), t.Value,
				validation.IsValidLabelValue(t.Value))...)
		case corev1.TolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(at.Child("operator"), t.Value,
					"value must be empty when `operator` is 'Exists'"))
			}
		case corev1.TolerationOpLt, corev1.TolerationOpGt:
			// The operators belong to an alpha feature of 1.35, which is off by default (KEP-5471).
			if !opts.comparedTaints {
				errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator,
					[]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
			} else if _, err := strconv.ParseInt(t.Value, 10, 64); err != nil {
				errs = append(errs, field.Invalid(at.Child("value"), t.Value,
					"must be an integer when operator is Lt or Gt"))
			}
		default:
			errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator,
				[]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		if t.Effect != "" {
			errs = append(errs, oneOf(at.Child("effect"), t.Effect, corev1.TaintEffectNoSchedule,
				corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		}
	}
	return errs
}

// validateDeletionCost validates the annotation by which replica sets choose the pods to delete
// first.
func validateDeletionCost(annotations map[string]string, path *field.Path) field.ErrorList {
	value, ok := annotations[corev1.PodDeletionCost]
	if !ok {
		return nil
	}
	cost, err := strconv.ParseInt(value, 10, 64)
	plain := value == strconv.FormatInt(cost, 10)
	if err != nil || !plain || cost < math.MinInt32 || cost > math.MaxInt32 {
		return field.ErrorList{
			field.Invalid(path.Key(corev1.PodDeletionCost), value, "must be a 32-bit integer"),
		}
	}
	return nil
}
