package legacy

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/warning"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kinproc/kinproc/chain/core/internal/rules/podspec"
	"github.com/kinproc/kinproc/chain/features"
)

func preparePod(ctx context.Context, p *corev1.Pod) {
	podspec.SyncServiceAccount(&p.Spec)
	podspec.DropDisabledSpecFields(&p.Spec, nil)
	fixGracePeriod(p)
	mergeLabelKeys(p)
	copyAppArmorAnnotations(ctx, p)
	podspec.DefaultPodResources(&p.Spec)
	qos := p.Status.QOSClass // a class that the client sets is kept
	if qos == "" {
		qos = podQOS(p)
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: qos}
	if len(p.Spec.SchedulingGates) > 0 {
		setPodCondition(&p.Status, corev1.PodCondition{
			Type:    corev1.PodScheduled,
			Status:  corev1.ConditionFalse,
			Reason:  corev1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates",
		})
	}
}

func preparePodUpdate(_ context.Context, p, old *corev1.Pod) {
	podspec.SyncServiceAccount(&p.Spec)
	podspec.KeepPodResources(&p.Spec, &old.Spec)
	podspec.DropDisabledSpecFields(&p.Spec, &old.Spec)
	fixGracePeriod(p)
}

// fixGracePeriod sets negative grace periods, which were once valid, to one second.
func fixGracePeriod(p *corev1.Pod) {
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil && *s < 0 {
		p.Spec.TerminationGracePeriodSeconds = new(int64(1))
	}
}

// mergeLabelKeys adds matchLabelKeys and mismatchLabelKeys to the label selectors, for the
// scheduler (KEP-3633, KEP-3243).
func mergeLabelKeys(p *corev1.Pod) {
	add := func(selector *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator) {
		for _, key := range keys {
			if value, ok := p.Labels[key]; ok && selector != nil {
				selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
					Key: key, Operator: operator, Values: []string{value},
				})
			}
		}
	}
	terms := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		for i := range required {
			add(required[i].LabelSelector, required[i].MatchLabelKeys, metav1.LabelSelectorOpIn)
			add(required[i].LabelSelector, required[i].MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
		}
		for i := range preferred {
			t := &preferred[i].PodAffinityTerm
			add(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn)
			add(t.LabelSelector, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
		}
	}
	if a := p.Spec.Affinity; a != nil {
		if a.PodAffinity != nil {
			terms(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
				a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if a.PodAntiAffinity != nil {
			terms(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
				a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		add(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn)
	}
}

// copyAppArmorAnnotations copies AppArmor profiles from the deprecated annotations to the fields,
// and warns about the annotations.
func copyAppArmorAnnotations(ctx context.Context, p *corev1.Pod) {
	if p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows {
		return
	}
	var ofPod *corev1.AppArmorProfile
	if p.Spec.SecurityContext != nil {
		ofPod = p.Spec.SecurityContext.AppArmorProfile
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			c := &list[i]
			key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + c.Name
			value, ok := p.Annotations[key]
			if !ok || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
				continue
			}
			profile := podspec.AppArmorFromAnnotation(value)
			if profile != nil && equality.Semantic.DeepEqual(profile, ofPod) {
				continue
			}
			if profile != nil {
				if c.SecurityContext == nil {
					c.SecurityContext = &corev1.SecurityContext{}
				}
				c.SecurityContext.AppArmorProfile = profile
			}
			warning.AddWarning(ctx, "", fmt.Sprintf("metadata.annotations[%s]: deprecated since v1.30; "+
				"set securityContext.appArmorProfile instead", key))
		}
	}
}

// podQOS returns the QoS class of the pod, which determines the pods that a node stops first if it
// runs out of memory. The class is Guaranteed if every container limits cpu and memory and requests
// the same amounts, BestEffort if no container requests or limits either, and Burstable otherwise.
// Pod-level resources, if set, replace the resources of the containers.
func podQOS(p *corev1.Pod) corev1.PodQOSClass {
	var all []corev1.ResourceRequirements
	if r := p.Spec.Resources; r != nil &&
		(!features.Enabled(features.PodLevelResourcesFixKubeletQOSClass) ||
			resourcehelper.IsPodLevelResourcesSet(p)) {
		all = append(all, *r)
	} else {
		for _, c := range p.Spec.InitContainers {
			all = append(all, c.Resources)
		}
		for _, c := range p.Spec.Containers {
			all = append(all, c.Resources)
		}
	}
	guaranteed, asked := true, false
	requests, limits := map[corev1.ResourceName]resource.Quantity{},
		map[corev1.ResourceName]resource.Quantity{}
	for _, r := range all {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			asked = sum(requests, r.Requests, name) || asked
			limited := sum(limits, r.Limits, name)
			asked = limited || asked
			guaranteed = guaranteed && limited
		}
	}
	if !asked {
		return corev1.PodQOSBestEffort
	}
	for name, request := range requests {
		limit, ok := limits[name]
		guaranteed = guaranteed && ok && limit.Cmp(request) == 0
	}
	if guaranteed && len(requests) == len(limits) {
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// sum adds the named resource of list to sums. It reports whether list has a positive amount.
func sum(
	sums map[corev1.ResourceName]resource.Quantity, list corev1.ResourceList, name corev1.ResourceName,
) bool {
	quantity, ok := list[name]
	if !ok || quantity.Sign() <= 0 {
		return false
	}
	total := sums[name]
	total.Add(quantity)
	sums[name] = total
	return true
}

func podCondition(s *corev1.PodStatus, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// setPodCondition sets a condition. The transition time changes only with the status of the
// condition.
func setPodCondition(s *corev1.PodStatus, c corev1.PodCondition) {
	c.LastTransitionTime = metav1.Now()
	old := podCondition(s, c.Type)
	if old == nil {
		s.Conditions = append(s.Conditions, c)
		return
	}
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	*old = c
}
