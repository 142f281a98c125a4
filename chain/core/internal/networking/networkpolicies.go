package networking

import (
	"context"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/addresses"
	"github.com/kinproc/kinproc/chain/kind"
)

// NetworkPolicies declares networkpolicies.
func NetworkPolicies() *kind.Kind[*networkingv1.NetworkPolicy] {
	return &kind.Kind[*networkingv1.NetworkPolicy]{
		Plural:     "networkpolicies",
		ShortNames: []string{"netpol"},
		Default:    defaultNetworkPolicy,
		Validate: func(_ context.Context, p *networkingv1.NetworkPolicy) field.ErrorList {
			return policyRules{}.validate(&p.Spec)
		},
		ValidateUpdate: validateNetworkPolicyUpdate,
		Table: kind.Table[*networkingv1.NetworkPolicy]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Pod-Selector", Description: "Pods that the policy applies to."},
				kind.AgeColumn(),
			},
			Row: func(p *networkingv1.NetworkPolicy) []any {
				return []any{p.Name, metav1.FormatLabelSelector(&p.Spec.PodSelector), kind.Age(p)}
			},
		},
		Warnings: func(_ context.Context, p, _ *networkingv1.NetworkPolicy) []string {
			var warnings []string
			eachPeer(&p.Spec, func(peer *networkingv1.NetworkPolicyPeer, path *field.Path) {
				if block := peer.IPBlock; block != nil {
					path = path.Child("ipBlock")
					warnings = append(warnings, validation.GetWarningsForCIDR(path.Child("cidr"), block.CIDR)...)
					for i, except := range block.Except {
						warnings = append(warnings,
							validation.GetWarningsForCIDR(path.Child("except").Index(i), except)...)
					}
				}
			})
			return warnings
		},
		// An empty list counts as a change from a nil list, although they mean the same.
		SameGeneration: func(p, old *networkingv1.NetworkPolicy) bool {
			return reflect.DeepEqual(p.Spec, old.Spec)
		},
	}
}

func defaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	eachPort(&p.Spec, func(port *networkingv1.NetworkPolicyPort, _ *field.Path) {
		if port.Protocol == nil {
			port.Protocol = new(corev1.ProtocolTCP)
		}
	})
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
}

// policyRules lists the values that an update may keep because the old object has them, although
// they are invalid.
type policyRules struct {
	selectors metavalidation.LabelSelectorValidationOptions
	cidrs     sets.Set[string]
}

func validateNetworkPolicyUpdate(
	_ context.Context, p, old *networkingv1.NetworkPolicy,
) field.ErrorList {
	r := policyRules{cidrs: sets.New[string]()}
	r.selectors.AllowInvalidLabelValueInSelector =
		len(metavalidation.ValidateLabelSelector(&old.Spec.PodSelector, r.selectors, nil)) > 0
	eachPeer(&old.Spec, func(peer *networkingv1.NetworkPolicyPeer, _ *field.Path) {
		if peer.IPBlock != nil {
			r.cidrs.Insert(peer.IPBlock.CIDR)
			r.cidrs.Insert(peer.IPBlock.Except...)
		}
	})
	return r.validate(&p.Spec)
}

func (r policyRules) validate(spec *networkingv1.NetworkPolicySpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := metavalidation.ValidateLabelSelector(&spec.PodSelector, r.selectors,
		path.Child("podSelector"))
	eachPort(spec, func(port *networkingv1.NetworkPolicyPort, path *field.Path) {
		errs = append(errs, validatePolicyPort(port, path)...)
	})
	eachPeer(spec, func(peer *networkingv1.NetworkPolicyPeer, path *field.Path) {
		errs = append(errs, r.validatePeer(peer, path)...)
	})
	types := path.Child("policyTypes")
	supported := []networkingv1.PolicyType{
		networkingv1.PolicyTypeEgress, networkingv1.PolicyTypeIngress,
	}
	if len(spec.PolicyTypes) > len(supported) {
		return append(errs, field.Invalid(types, spec.PolicyTypes, "must have at most two items"))
	}
	for i, t := range spec.PolicyTypes {
		if t != networkingv1.PolicyTypeEgress && t != networkingv1.PolicyTypeIngress {
			errs = append(errs, field.NotSupported(types.Index(i), t, supported))
		}
	}
	return errs
}

func validatePolicyPort(p *networkingv1.NetworkPolicyPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.Protocol != nil {
		errs = append(errs, addresses.Protocol(path.Child("protocol"), *p.Protocol)...)
	}
	end := path.Child("endPort")
	switch {
	case p.Port == nil:
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(end, *p.EndPort,
				"may not be set without port"))
		}
	case p.Port.Type == intstr.String:
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(end, *p.EndPort,
				"may not be specified when `port` is non-numeric"))
		}
		errs = append(errs, rules.Invalid(path.Child("port"), p.Port.StrVal,
			validation.IsValidPortName(p.Port.StrVal))...)
	default:
		errs = append(errs, rules.Invalid(path.Child("port"), p.Port.IntVal,
			validation.IsValidPortNum(int(p.Port.IntVal)))...)
		if p.EndPort == nil {
			break
		}
		if *p.EndPort < p.Port.IntVal {
			errs = append(errs, field.Invalid(end, *p.EndPort, "must not be less than port"))
		}
		errs = append(errs, rules.Invalid(end, *p.EndPort,
			validation.IsValidPortNum(int(*p.EndPort)))...)
	}
	return errs
}

func (r policyRules) validatePeer(
	p *networkingv1.NetworkPolicyPeer, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	selects := p.PodSelector != nil || p.NamespaceSelector != nil
	if p.PodSelector != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(p.PodSelector, r.selectors,
			path.Child("podSelector"))...)
	}
	if p.NamespaceSelector != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(p.NamespaceSelector, r.selectors,
			path.Child("namespaceSelector"))...)
	}
	if p.IPBlock != nil {
		errs = append(errs, r.validateBlock(p.IPBlock, path.Child("ipBlock"))...)
	}
	switch {
	case !selects && p.IPBlock == nil:
		errs = append(errs, field.Required(path,
			"must specify a peer"))
	case selects && p.IPBlock != nil:
		errs = append(errs, field.Forbidden(path,
			"an ipBlock may not be combined with a podSelector or a namespaceSelector"))
	}
	return errs
}

func (r policyRules) validateBlock(b *networkingv1.IPBlock, path *field.Path) field.ErrorList {
	if b.CIDR == "" {
		return field.ErrorList{field.Required(path.Child("cidr"), "")}
	}
	errs := addresses.CIDR(path.Child("cidr"), b.CIDR, r.cidrs)
	// The exceptions cannot be checked against an invalid block.
	if !addresses.IsCIDR(b.CIDR) {
		return errs
	}
	for i, except := range b.Except {
		path := path.Child("except").Index(i)
		errs = append(errs, addresses.CIDR(path, except, r.cidrs)...)
		if addresses.IsCIDR(except) && !addresses.StrictSubnet(b.CIDR, except) {
			errs = append(errs, field.Invalid(path, except, "must be a strict subset of cidr"))
		}
	}
	return errs
}

func eachPort(
	spec *networkingv1.NetworkPolicySpec, do func(*networkingv1.NetworkPolicyPort, *field.Path),
) {
	path := field.NewPath("spec")
	for i := range spec.Ingress {
		for j := range spec.Ingress[i].Ports {
			do(&spec.Ingress[i].Ports[j], path.Child("ingress").Index(i).Child("ports").Index(j))
		}
	}
	for i := range spec.Egress {
		for j := range spec.Egress[i].Ports {
			do(&spec.Egress[i].Ports[j], path.Child("egress").Index(i).Child("ports").Index(j))
		}
	}
}

func eachPeer(
	spec *networkingv1.NetworkPolicySpec, do func(*networkingv1.NetworkPolicyPeer, *field.Path),
) {
	path := field.NewPath("spec")
	for i := range spec.Ingress {
		for j := range spec.Ingress[i].From {
			do(&spec.Ingress[i].From[j], path.Child("ingress").Index(i).Child("from").Index(j))
		}
	}
	for i := range spec.Egress {
		for j := range spec.Egress[i].To {
			do(&spec.Egress[i].To[j], path.Child("egress").Index(i).Child("to").Index(j))
		}
	}
}
