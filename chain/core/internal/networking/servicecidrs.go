package networking

import (
	"context"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/chain/kind"
)

// ServiceCIDRs declares servicecidrs, the blocks from which cluster IPs are allocated (KEP-1880).
func ServiceCIDRs() *kind.Kind[*networkingv1.ServiceCIDR] {
	return &kind.Kind[*networkingv1.ServiceCIDR]{
		Plural:        "servicecidrs",
		ClusterScoped: true,
		Versions: []kind.Version{
			kind.ServedAsSame[*networkingv1beta1.ServiceCIDR, *networkingv1.ServiceCIDR](),
		},
		Validate:       validateServiceCIDR,
		ValidateUpdate: validateServiceCIDRUpdate,
		Table: kind.Table[*networkingv1.ServiceCIDR]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "CIDRs", Description: "The blocks, one for each IP family."},
				kind.AgeColumn(),
			},
			Row: func(c *networkingv1.ServiceCIDR) []any {
				return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), kind.Age(c)}
			},
		},
		Status: &kind.Status[*networkingv1.ServiceCIDR]{
			Prepare: func(_ context.Context, c, old *networkingv1.ServiceCIDR) {
				metav1.ResetObjectMetaForStatus(&c.ObjectMeta, &old.ObjectMeta)
			},
			ResetFields: []string{"metadata", "spec"},
		},
		Quirks: kind.Quirks{
			StatusWithSpec: func() bool {
				return !features.Enabled(features.ServiceCIDRStatusFieldWiping)
			},
		},
	}
}

func validateServiceCIDR(_ context.Context, c *networkingv1.ServiceCIDR) field.ErrorList {
	path, cidrs := field.NewPath("spec", "cidrs"), c.Spec.CIDRs
	switch {
	case len(cidrs) == 0:
		return field.ErrorList{field.Required(path, "must have one block, or one of each IP family")}
	case len(cidrs) > 2:
		return field.ErrorList{
			field.Invalid(path, cidrs, "must have at most two blocks, one of each IP family"),
		}
	}
	var errs field.ErrorList
	for i, cidr := range cidrs {
		errs = append(errs, validation.IsValidCIDR(path.Index(i), cidr)...)
	}
	if len(cidrs) == 2 {
		family := netutils.IPFamilyOfCIDRString(cidrs[0])
		if family != netutils.IPFamilyUnknown && family == netutils.IPFamilyOfCIDRString(cidrs[1]) {
			errs = append(errs, field.Invalid(path, cidrs, "must be of different IP families"))
		}
	}
	return errs
}

// validateServiceCIDRUpdate allows adding a block of the other IP family and no other change.
func validateServiceCIDRUpdate(
	ctx context.Context, c, old *networkingv1.ServiceCIDR,
) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "cidrs")
	grown := len(old.Spec.CIDRs) == 1 && len(c.Spec.CIDRs) == 2
	if len(c.Spec.CIDRs) != len(old.Spec.CIDRs) && !grown {
		return append(errs, field.Invalid(path, c.Spec.CIDRs, apivalidation.FieldImmutableErrorMsg))
	}
	for i, cidr := range old.Spec.CIDRs {
		if c.Spec.CIDRs[i] != cidr {
			errs = append(errs, field.Invalid(path.Index(i), c.Spec.CIDRs[i],
				apivalidation.FieldImmutableErrorMsg))
		}
	}
	if grown {
		errs = append(errs, validateServiceCIDR(ctx, c)...)
	}
	return errs
}
