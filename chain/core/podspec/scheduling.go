package podspec

import (
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/rules"
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
		errs = append(errs, rules.ValidateNodeSelector(a.RequiredDuringSchedulingIgnoredDuringExecution, opts.invalidNodeAffinity,
			path.Child("requiredDuringSchedulingIgnoredDuringExecution"))...)
	}
	for i, term := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		at := path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		errs = append(errs, validateWeight(term.Weight, at)...)
		errs = append(errs, rules.ValidateNodeSelectorTerm(&term.Preference, true, at.Child("preference"))...)
	}
	return errs
}

func validateWeight(weight int32, path *field.Path) field.ErrorList {
	if weight < 1 || weight > 100 {
		return field.ErrorList{field.Invalid(path.Child("weight"), weight, "must be between 1 and 100")}
	}
	return nil
}

func validatePodTerms(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, path *field.Path, opts Options) field.ErrorList {
	var errs field.ErrorList
	for i := range required {
		errs = append(errs, validatePodTerm(&required[i], path.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i), opts)...)
	}
	for i := range preferred {
		at := path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		errs = append(errs, validateWeight(preferred[i].Weight, at)...)
		errs = append(errs, validatePodTerm(&preferred[i].PodAffinityTerm, at.Child("podAffinityTerm"), opts)...)
	}
	return errs
}

func validatePodTerm(t *corev1.PodAffinityTerm, path *field.Path, opts Options) field.ErrorList {
	errs := validateSelector(t.LabelSelector, opts.invalidSelectors, path.Child("labelSelector"))
	errs = append(errs, validateSelector(t.NamespaceSelector, opts.invalidSelectors, path.Child("namespaceSelector"))...)
	for _, namespace := range t.Namespaces {
		// The singular is kube-apiserver's.
		errs = append(errs, messages(path.Child("namespace"), namespace, apivalidation.ValidateNamespaceName(namespace, false))...)
	}
	errs = append(errs, validateAffinityKeys(t, path)...)
	if t.TopologyKey == "" {
		errs = append(errs, field.Required(path.Child("topologyKey"), ""))
	}
	return append(errs, metav1validation.ValidateLabelName(t.TopologyKey, path.Child("topologyKey"))...)
}

// validateAffinityKeys checks matchLabelKeys and mismatchLabelKeys (KEP-3633). The registry has merged the keys into the selector by then:
// as In and NotIn requirements of one value each.
func validateAffinityKeys(t *corev1.PodAffinityTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	required := map[string]int{}
	if t.LabelSelector != nil {
		for key := range t.LabelSelector.MatchLabels {
			required[key]++
		}
		for _, r := range t.LabelSelector.MatchExpressions {
			required[r.Key]++
		}
	}
	match, mismatch := path.Child("matchLabelKeys"), path.Child("mismatchLabelKeys")
	for _, list := range []struct {
		keys []string
		path *field.Path
	}{{t.MatchLabelKeys, match}, {t.MismatchLabelKeys, mismatch}} {
		if len(list.keys) > 0 && t.LabelSelector == nil {
			errs = append(errs, field.Forbidden(list.path, "there is no labelSelector to add to"))
		}
		for i, key := range list.keys {
			errs = append(errs, metav1validation.ValidateLabelName(key, list.path.Index(i))...)
			if required[key] > 1 {
				errs = append(errs, field.Invalid(list.path.Index(i), key, "is in labelSelector too"))
			}
		}
	}
	for i, key := range t.MatchLabelKeys {
		if slices.Contains(t.MismatchLabelKeys, key) {
			errs = append(errs, field.Invalid(match.Index(i), key, "is in mismatchLabelKeys too"))
		}
	}
	return errs
}

func validateSelector(s *metav1.LabelSelector, anyValue bool, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: anyValue}, path)
}

func validateSpreadConstraints(list []corev1.TopologySpreadConstraint, path *field.Path, opts Options) field.ErrorList {
	var errs field.ErrorList
	type pair struct {
		key    string
		action corev1.UnsatisfiableConstraintAction
	}
	seen := sets.Set[pair]{}
	for i, c := range list {
		at := path.Index(i)
		if c.MaxSkew <= 0 {
			errs = append(errs, field.Invalid(at.Child("maxSkew"), c.MaxSkew, "must be greater than zero"))
		}
		if c.TopologyKey == "" {
			errs = append(errs, field.Required(at.Child("topologyKey"), ""))
		} else {
			errs = append(errs, metav1validation.ValidateLabelName(c.TopologyKey, at.Child("topologyKey"))...)
		}
		actions := []corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}
		if !slices.Contains(actions, c.WhenUnsatisfiable) {
			errs = append(errs, field.NotSupported(at.Child("whenUnsatisfiable"), c.WhenUnsatisfiable, actions))
		}
		if seen.Has(pair{c.TopologyKey, c.WhenUnsatisfiable}) {
			errs = append(errs, field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), c.TopologyKey+", "+string(c.WhenUnsatisfiable)))
		}
		seen.Insert(pair{c.TopologyKey, c.WhenUnsatisfiable})
		if c.MinDomains != nil {
			if *c.MinDomains <= 0 {
				errs = append(errs, field.Invalid(at.Child("minDomains"), *c.MinDomains, "must be greater than zero"))
			}
			if c.WhenUnsatisfiable != corev1.DoNotSchedule {
				errs = append(errs, field.Invalid(at.Child("minDomains"), *c.MinDomains, "needs whenUnsatisfiable DoNotSchedule"))
			}
		}
		for name, policy := range map[string]*corev1.NodeInclusionPolicy{"nodeAffinityPolicy": c.NodeAffinityPolicy, "nodeTaintsPolicy": c.NodeTaintsPolicy} {
			policies := []corev1.NodeInclusionPolicy{corev1.NodeInclusionPolicyIgnore, corev1.NodeInclusionPolicyHonor}
			if policy != nil && !slices.Contains(policies, *policy) {
				errs = append(errs, field.NotSupported(at.Child(name), *policy, policies))
			}
		}
		if !opts.badMatchLabelKeys {
			errs = append(errs, validateSpreadKeys(&c, at.Child("matchLabelKeys"), opts)...)
		}
		errs = append(errs, validateSelector(c.LabelSelector, opts.invalidSpreadSelectors, at.Child("labelSelector"))...)
	}
	return errs
}

// validateSpreadKeys checks matchLabelKeys (KEP-3243). In pods the registry has merged the keys into the selector, so once is allowed there.
func validateSpreadKeys(c *corev1.TopologySpreadConstraint, path *field.Path, opts Options) field.ErrorList {
	if len(c.MatchLabelKeys) == 0 {
		return nil
	}
	if c.LabelSelector == nil {
		return field.ErrorList{field.Forbidden(path, "there is no labelSelector to add to")}
	}
	allowed := 0
	if opts.pod {
		allowed = 1
	}
	var errs field.ErrorList
	for i, key := range c.MatchLabelKeys {
		errs = append(errs, metav1validation.ValidateLabelName(key, path.Index(i))...)
		found := 0
		if _, ok := c.LabelSelector.MatchLabels[key]; ok {
			found += 2
		}
		for _, r := range c.LabelSelector.MatchExpressions {
			if r.Key == key {
				found++
			}
		}
		if found > allowed {
			errs = append(errs, field.Invalid(path.Index(i), key, "is in labelSelector too"))
		}
	}
	return errs
}

// ValidateTolerations checks a list of tolerations, such as a runtime class adds to pods.
func ValidateTolerations(list []corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, t := range list {
		at := path.Index(i)
		if t.Key != "" {
			errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		} else if t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "must be Exists to tolerate all keys"))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "must be NoExecute for tolerationSeconds to mean anything"))
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			errs = append(errs, messages(at.Child("operator"), t.Value, validation.IsValidLabelValue(t.Value))...)
		case corev1.TolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(at.Child("operator"), t.Value, "Exists takes no value"))
			}
		case corev1.TolerationOpLt, corev1.TolerationOpGt:
			if _, err := strconv.ParseInt(t.Value, 10, 64); err != nil {
				errs = append(errs, field.Invalid(at.Child("value"), t.Value, "Lt and Gt compare whole numbers"))
			}
		default:
			errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		if t.Effect != "" {
			errs = append(errs, oneOf(at.Child("effect"), t.Effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		}
	}
	return errs
}

// validateDeletionCost checks the annotation by which replica sets choose what to delete first.
func validateDeletionCost(annotations map[string]string, path *field.Path) field.ErrorList {
	value, ok := annotations[corev1.PodDeletionCost]
	if !ok {
		return nil
	}
	cost, err := strconv.ParseInt(value, 10, 64)
	plain := value == strconv.FormatInt(cost, 10)
	if err != nil || !plain || cost < math.MinInt32 || cost > math.MaxInt32 {
		return field.ErrorList{field.Invalid(path.Key(corev1.PodDeletionCost), value, "must be a number of 32 bits")}
	}
	return nil
}
