package legacy

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/kinproc/kinproc/chain/core/internal/rules/addresses"
	"github.com/kinproc/kinproc/chain/core/internal/rules/quantities"
)

// taintsAnnotation is the annotation that held taints before spec.taints existed.
const taintsAnnotation = "scheduler.alpha.kubernetes.io/taints"

// declaredFeature matches the name of a feature: segments of letters and digits, separated by
// slashes. The first segment begins with a capital letter.
var declaredFeature = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*(/[A-Za-z0-9]+)*$`)

func validateNode(_ context.Context, n *corev1.Node) field.ErrorList {
	meta := field.NewPath("metadata")
	errs := validateNodeAnnotations(n.Annotations, meta.Child("annotations"))
	// kube-apiserver reports taints and swap capacity under metadata: taints because they were once
	// an annotation, swap capacity by mistake.
	errs = append(errs, validateTaints(n.Spec.Taints, meta.Child("taints"))...)
	errs = append(errs, validateNodeStatus(&n.Status)...)
	if swap := n.Status.NodeInfo.Swap; swap != nil && swap.Capacity != nil && *swap.Capacity <= 0 {
		errs = append(errs, field.Invalid(meta.Child("nodeSwapStatus", "capacity"), *swap.Capacity,
			"must be greater than zero"))
	}

	at := field.NewPath("spec", "podCIDRs")
	for i, cidr := range n.Spec.PodCIDRs {
		errs = append(errs, addresses.CIDR(at.Index(i), cidr, nil)...)
	}
	if count := len(n.Spec.PodCIDRs); count > 1 {
		dual, err := netutils.IsDualStackCIDRStrings(n.Spec.PodCIDRs)
		if err != nil {
			errs = append(errs, field.InternalError(at,
				fmt.Errorf("determine the IP families of the CIDRs: %w", err)))
		}
		if !dual || count > 2 {
			errs = append(errs, field.Invalid(at, n.Spec.PodCIDRs,
				"must have at most one CIDR of each IP family"))
		}
	}
	return errs
}

// validateNodeStatus validates the status fields that are checked on every write, through nodes and
// nodes/status alike.
func validateNodeStatus(status *corev1.NodeStatus) field.ErrorList {
	errs := append(validateNodeAmounts(status.Capacity, "capacity"),
		validateNodeAmounts(status.Allocatable, "allocatable")...)
	at, features := field.NewPath("status", "declaredFeatures"), status.DeclaredFeatures
	for i, feature := range features {
		if len(feature) > validation.DNS1123SubdomainMaxLength || !declaredFeature.MatchString(feature) {
			errs = append(errs, field.Invalid(at.Index(i), feature,
				"must be the name of a feature, such as MyFeature/mySubFeature"))
		}
		if i == 0 {
			continue
		}
		switch previous := features[i-1]; {
		case feature == previous:
			errs = append(errs, field.Duplicate(at.Index(i), feature))
		case feature < previous:
			errs = append(errs, field.Invalid(at.Index(i), feature, "must come before "+previous))
		}
	}
	return errs
}

func validateNodeAmounts(list corev1.ResourceList, child string) field.ErrorList {
	var errs field.ErrorList
	for name, q := range list {
		errs = append(errs, quantities.ValidateResourceQuantity(name, q,
			field.NewPath("status", child, string(name)))...)
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
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule,
			corev1.TaintEffectNoExecute:
		case "":
			errs = append(errs, field.Required(path.Child("effect"), "must specify the effect of the taint"))
		default:
			errs = append(errs, field.NotSupported(path.Child("effect"), t.Effect,
				[]corev1.TaintEffect{
					corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute,
				}))
		}
		identity := [2]string{t.Key, string(t.Effect)}
		if seen.Has(identity) {
			errs = append(errs, field.Duplicate(path, t))
		}
		seen.Insert(identity)
	}
	return errs
}

// validateNodeAnnotations validates the taints annotation and the preferAvoidPods annotation.
func validateNodeAnnotations(annotations map[string]string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if value := annotations[taintsAnnotation]; value != "" {
		var taints []corev1.Taint
		if err := json.Unmarshal([]byte(value), &taints); err != nil {
			errs = append(errs, field.Invalid(at, taintsAnnotation, err.Error()))
		} else {
			errs = append(errs, validateTaints(taints, at.Child(taintsAnnotation))...)
		}
	}
	return append(errs, validateAvoidPods(annotations[corev1.PreferAvoidPodsAnnotationKey], at)...)
}

// validateAvoidPods validates the value of the preferAvoidPods annotation, which asks the scheduler
// to keep the pods of certain controllers away from the node.
func validateAvoidPods(value string, at *field.Path) field.ErrorList {
	if value == "" {
		return nil
	}
	var avoid corev1.AvoidPods
	if err := json.Unmarshal([]byte(value), &avoid); err != nil {
		return field.ErrorList{
			field.Invalid(at.Child("AvoidPods"), corev1.PreferAvoidPodsAnnotationKey, err.Error()),
		}
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

// validateNodeUpdate validates a change of n. podCIDRs and providerID are immutable once set,
// externalID is always immutable.
func validateNodeUpdate(_ context.Context, n, old *corev1.Node) field.ErrorList {
	meta, spec := field.NewPath("metadata"), field.NewPath("spec")
	errs := validateNodeAnnotations(n.Annotations, meta.Child("annotations"))
	errs = append(errs, validateNodeStatus(&n.Status)...)
	seen := sets.New[corev1.NodeAddress]()
	for i, address := range n.Status.Addresses {
		if seen.Has(address) {
			errs = append(errs, field.Duplicate(field.NewPath("status", "addresses").Index(i), address))
		}
		seen.Insert(address)
	}
	errs = append(errs, validateTaints(n.Spec.Taints, meta.Child("taints"))...)

	if len(old.Spec.PodCIDRs) > 0 && !slices.Equal(old.Spec.PodCIDRs, n.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(spec.Child("podCIDRs"),
			"cannot be changed once they are set"))
	}
	if old.Spec.ProviderID != "" && old.Spec.ProviderID != n.Spec.ProviderID {
		errs = append(errs, field.Invalid(spec.Child("providerID"), n.Spec.ProviderID,
			"field cannot be modified once set"))
	}
	if old.Spec.DoNotUseExternalID != n.Spec.DoNotUseExternalID {
		errs = append(errs, field.Forbidden(spec.Child("externalID"), "cannot be changed"))
	}
	return errs
}
