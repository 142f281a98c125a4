package core

import (
	"context"
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/kinproc/kinproc/chain/core/rules"
)

func validateNode(_ context.Context, n *corev1.Node) field.ErrorList {
	errs := validateAvoidPods(n.Annotations[corev1.PreferAvoidPodsAnnotationKey], field.NewPath("metadata", "annotations"))
	// The path that kube-apiserver reports, for taints are from the time of annotations.
	errs = append(errs, validateTaints(n.Spec.Taints, field.NewPath("metadata", "taints"))...)
	errs = append(errs, validateNodeAmounts(n.Status.Capacity, "capacity")...)
	errs = append(errs, validateNodeAmounts(n.Status.Allocatable, "allocatable")...)

	at := field.NewPath("spec", "podCIDRs")
	for i, cidr := range n.Spec.PodCIDRs {
		errs = append(errs, validation.IsValidCIDRForLegacyField(at.Index(i), cidr, false, nil)...)
	}
	if count := len(n.Spec.PodCIDRs); count > 1 {
		if dual, err := netutils.IsDualStackCIDRStrings(n.Spec.PodCIDRs); count > 2 || err == nil && !dual {
			errs = append(errs, field.Invalid(at, n.Spec.PodCIDRs, "a node has one CIDR of each IP family at most"))
		}
	}
	return errs
}

func validateNodeAmounts(list corev1.ResourceList, child string) field.ErrorList {
	var errs field.ErrorList
	for name, q := range list {
		errs = append(errs, rules.ValidateResourceQuantity(name, q, field.NewPath("status", child, string(name)))...)
	}
	return errs
}

func validateTaints(taints []corev1.Taint, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[[2]string]()
	for i, t := range taints {
		path := at.Index(i)
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, path.Child("key"))...)
		if msgs := validation.IsValidLabelValue(t.Value); len(msgs) > 0 {
			errs = append(errs, field.Invalid(path.Child("value"), t.Value, strings.Join(msgs, "; ")))
		}
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		case "":
			errs = append(errs, field.Required(path.Child("effect"), "say what the taint does"))
		default:
			errs = append(errs, field.NotSupported(path.Child("effect"), t.Effect,
				[]corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}))
		}
		identity := [2]string{t.Key, string(t.Effect)}
		if seen.Has(identity) {
			errs = append(errs, field.Duplicate(path, t))
		}
		seen.Insert(identity)
	}
	return errs
}

// validateAvoidPods checks an annotation that asks the scheduler to keep a controller's pods away.
func validateAvoidPods(value string, at *field.Path) field.ErrorList {
	if value == "" {
		return nil
	}
	var avoid corev1.AvoidPods
	if err := json.Unmarshal([]byte(value), &avoid); err != nil {
		return field.ErrorList{field.Invalid(at.Child("AvoidPods"), corev1.PreferAvoidPodsAnnotationKey, err.Error())}
	}
	var errs field.ErrorList
	for i, entry := range avoid.PreferAvoidPods {
		path := at.Child(corev1.PreferAvoidPodsAnnotationKey).Index(i).Child("podSignature")
		switch owner := entry.PodSignature.PodController; {
		case owner == nil:
			errs = append(errs, field.Required(path, ""))
		case owner.Controller == nil || !*owner.Controller:
			errs = append(errs, field.Invalid(path.Child("PodController"), *owner, "must be a controller"))
		}
	}
	return errs
}

// validateNodeUpdate lets labels, taints, schedulability and the status change, and what was empty be filled in.
func validateNodeUpdate(_ context.Context, n, old *corev1.Node) field.ErrorList {
	errs := validateAvoidPods(n.Annotations[corev1.PreferAvoidPodsAnnotationKey], field.NewPath("metadata", "annotations"))
	errs = append(errs, validateNodeAmounts(n.Status.Capacity, "capacity")...)
	errs = append(errs, validateNodeAmounts(n.Status.Allocatable, "allocatable")...)
	seen := sets.New[corev1.NodeAddress]()
	for i, address := range n.Status.Addresses {
		if seen.Has(address) {
			errs = append(errs, field.Duplicate(field.NewPath("status", "addresses").Index(i), address))
		}
		seen.Insert(address)
	}
	errs = append(errs, validateTaints(n.Spec.Taints, field.NewPath("metadata", "taints"))...)

	want := old.Spec.DeepCopy()
	want.Unschedulable, want.Taints, want.ConfigSource = n.Spec.Unschedulable, n.Spec.Taints, n.Spec.ConfigSource
	spec := field.NewPath("spec")
	if len(old.Spec.PodCIDRs) == 0 {
		want.PodCIDR, want.PodCIDRs = n.Spec.PodCIDR, n.Spec.PodCIDRs
	} else if !equality.Semantic.DeepEqual(old.Spec.PodCIDRs, n.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(spec.Child("podCIDRs"), "cannot be changed once they are set"))
	}
	if old.Spec.ProviderID == "" {
		want.ProviderID = n.Spec.ProviderID
	} else if old.Spec.ProviderID != n.Spec.ProviderID {
		errs = append(errs, field.Forbidden(spec.Child("providerID"), "cannot be changed once it is set"))
	}
	if !equality.Semantic.DeepEqual(*want, n.Spec) {
		errs = append(errs, field.Forbidden(field.NewPath(""), "of a node, only labels, taints, schedulability and status can be changed"))
	}
	return errs
}
