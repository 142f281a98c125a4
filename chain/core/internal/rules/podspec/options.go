package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules/nodeselectors"
	"github.com/kinproc/kinproc/chain/core/internal/rules/quantities"
)

// Options relax the validation of objects that were stored under looser rules: an update may keep
// what the object already has. The zero value is strict and is used for new objects.
type Options struct {
	// pod is set if the spec is that of a pod, not of a template.
	pod bool

	partHugePages          bool
	invalidSelectors       bool
	invalidSpreadSelectors bool
	invalidNodeAffinity    bool
	hostSysctls            bool
	badTokenPaths          bool
	badDeletionCost        bool
	// legacySpreadKeys allows matchLabelKeys that spread constraints could have before 1.34.
	legacySpreadKeys bool
	// restartingInitContainers allows resize policies that restart init containers that run to
	// completion, which 1.35 accepted.
	restartingInitContainers bool
	// ownUsersWithDevices and ownUsersInHostNetwork allow hostUsers: false together with
	// volumeDevices and with hostNetwork.
	ownUsersWithDevices, ownUsersInHostNetwork bool
	// emptyImageVolumes allows image volumes without an image in templates, which 1.36 accepted.
	emptyImageVolumes bool
	// comparedTaints allows tolerations with the operators Lt and Gt, whose feature is off.
	comparedTaints bool

	// These allow what belongs to features that are off, because the old object uses them.
	restartsAll, envFiles, seLinuxPolicies bool
}

// OptionsFor returns the options for an update from oldTmpl to tmpl. oldTmpl is nil on create.
func OptionsFor(tmpl, oldTmpl *corev1.PodTemplateSpec) Options {
	if oldTmpl == nil {
		return Options{}
	}
	return optionsFrom(&oldTmpl.Spec, oldTmpl.Annotations)
}

// PodOptionsFor returns the options for an update from oldPod to pod. oldPod is nil on create.
func PodOptionsFor(pod, oldPod *corev1.Pod) Options {
	opts := Options{}
	if oldPod != nil {
		opts = optionsFrom(&oldPod.Spec, oldPod.Annotations)
	}
	opts.pod = true
	return opts
}

func optionsFrom(old *corev1.PodSpec, annotations map[string]string) Options {
	return Options{
		partHugePages:          hasPartHugePages(old),
		invalidSelectors:       hasInvalidAffinitySelector(old),
		invalidSpreadSelectors: hasInvalidSpreadSelector(old),
		invalidNodeAffinity:    hasInvalidNodeAffinityValue(old),
		hostSysctls:            hasHostSysctls(old),
		badTokenPaths:          hasBadTokenPath(old),
		badDeletionCost:        len(validateDeletionCost(annotations, nil)) > 0,
		legacySpreadKeys:       hasLegacySpreadKeys(old),

		restartingInitContainers: hasRestartingInitContainer(old),
		ownUsersWithDevices:      hasOwnUsers(old) && hasDevices(old),
		ownUsersInHostNetwork:    hasOwnUsers(old) && old.HostNetwork,
		emptyImageVolumes: slices.ContainsFunc(old.Volumes, func(v corev1.Volume) bool {
			return v.Image != nil && v.Image.Reference == ""
		}),
		comparedTaints: slices.ContainsFunc(old.Tolerations, func(t corev1.Toleration) bool {
			return t.Operator == corev1.TolerationOpLt || t.Operator == corev1.TolerationOpGt
		}),

		restartsAll: restartsAll(old),
		envFiles:    envFiles(old, false),
		seLinuxPolicies: old.SecurityContext != nil &&
			old.SecurityContext.SELinuxChangePolicy != nil,
	}
}

func hasOwnUsers(spec *corev1.PodSpec) bool { return spec.HostUsers != nil && !*spec.HostUsers }

func hasDevices(spec *corev1.PodSpec) bool {
	found := false
	eachContainer(spec, func(c *corev1.Container, _ *field.Path) {
		found = found || len(c.VolumeDevices) > 0
	})
	return found
}

func hasRestartingInitContainer(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.InitContainers, func(c corev1.Container) bool {
		return !isSidecar(&c) && len(forbidResizeRestart(&c, nil)) > 0
	})
}

func hasPartHugePages(spec *corev1.PodSpec) bool {
	lists := []corev1.ResourceList{spec.Overhead}
	eachContainer(spec, func(c *corev1.Container, _ *field.Path) {
		lists = append(lists, c.Resources.Limits, c.Resources.Requests)
	})
	for _, list := range lists {
		for name, quantity := range list {
			if quantities.IsHugePages(name) && !isWholeHugePages(name, quantity) {
				return true
			}
		}
	}
	return false
}

func hasInvalidAffinitySelector(spec *corev1.PodSpec) bool {
	for _, term := range affinityTerms(spec.Affinity) {
		for _, selector := range []*metav1.LabelSelector{term.LabelSelector, term.NamespaceSelector} {
			if isInvalidSelector(selector) {
				return true
			}
		}
	}
	return false
}

func hasInvalidSpreadSelector(spec *corev1.PodSpec) bool {
	for i := range spec.TopologySpreadConstraints {
		if isInvalidSelector(spec.TopologySpreadConstraints[i].LabelSelector) {
			return true
		}
	}
	return false
}

func isInvalidSelector(selector *metav1.LabelSelector) bool {
	return selector != nil && len(metav1validation.ValidateLabelSelector(selector,
		metav1validation.LabelSelectorValidationOptions{}, nil)) > 0
}

func hasInvalidNodeAffinityValue(spec *corev1.PodSpec) bool {
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return false
	}
	return nodeselectors.HasImpossibleValue(
		spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
}

func hasHostSysctls(spec *corev1.PodSpec) bool {
	if spec.SecurityContext == nil {
		return false
	}
	for _, sysctl := range spec.SecurityContext.Sysctls {
		if hostSysctl(spec, sysctl.Name) != "" {
			return true
		}
	}
	return false
}

func hasBadTokenPath(spec *corev1.PodSpec) bool {
	for _, v := range spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.ServiceAccountToken != nil &&
				len(validateRelativePath(source.ServiceAccountToken.Path, nil)) > 0 {
				return true
			}
		}
	}
	return false
}

func hasLegacySpreadKeys(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.TopologySpreadConstraints,
		func(c corev1.TopologySpreadConstraint) bool {
			return len(validateSpreadKeys(&c, nil, false)) > 0
		})
}

// affinityTerms returns all terms of pod affinity and anti-affinity, both required and preferred.
func affinityTerms(a *corev1.Affinity) []corev1.PodAffinityTerm {
	var terms []corev1.PodAffinityTerm
	add := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		terms = append(terms, required...)
		for _, p := range preferred {
			terms = append(terms, p.PodAffinityTerm)
		}
	}
	if a != nil && a.PodAffinity != nil {
		add(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a != nil && a.PodAntiAffinity != nil {
		add(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return terms
}

// eachContainer calls visit for all init, regular and ephemeral containers, with their paths
// relative to the spec.
func eachContainer(spec *corev1.PodSpec, visit func(c *corev1.Container, path *field.Path)) {
	for i := range spec.InitContainers {
		visit(&spec.InitContainers[i], field.NewPath("initContainers").Index(i))
	}
	for i := range spec.Containers {
		visit(&spec.Containers[i], field.NewPath("containers").Index(i))
	}
	for i := range spec.EphemeralContainers {
		c := (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)
		visit(c, field.NewPath("ephemeralContainers").Index(i))
	}
}

func isWholeHugePages(name corev1.ResourceName, quantity resource.Quantity) bool {
	size, err := resource.ParseQuantity(string(name)[len(corev1.ResourceHugePagesPrefix):])
	return err == nil && size.Value() > 0 && quantity.Value()%size.Value() == 0
}
