package networking

import (
	"context"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/kind"
)

// IPAddresses declares ipaddresses. Each cluster IP in use has one with the same name, so that no
// address is allocated twice (KEP-1880).
func IPAddresses() *kind.Kind[*networkingv1.IPAddress] {
	return &kind.Kind[*networkingv1.IPAddress]{
		Plural:        "ipaddresses",
		ShortNames:    []string{"ip"},
		ClusterScoped: true,
		Versions: []kind.Version{
			kind.ServedAsSame[*networkingv1beta1.IPAddress, *networkingv1.IPAddress](),
		},
		Name:           ipAddressName,
		Validate:       validateIPAddress,
		ValidateUpdate: validateIPAddressUpdate,
		Table: kind.Table[*networkingv1.IPAddress]{
			// kube-apiserver's rows have a third cell, the age, without a matching column.
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "ParentRef", Description: "The object that uses the address."},
			},
			Row: func(a *networkingv1.IPAddress) []any {
				return []any{a.Name, parent(a.Spec.ParentRef), kind.Age(a)}
			},
		},
		Quirks: kind.Quirks{NameOnUpdate: true},
	}
}

func parent(ref *networkingv1.ParentReference) string {
	if ref == nil {
		return "<none>"
	}
	parts := []string{
		strings.ToLower(schema.GroupResource{Group: ref.Group, Resource: ref.Resource}.String()),
	}
	if ref.Namespace != "" {
		parts = append(parts, ref.Namespace)
	}
	return strings.Join(append(parts, ref.Name), "/")
}

// ipAddressName requires an IP address in canonical form. It ignores prefix because such names
// cannot be generated.
func ipAddressName(name string, _ bool) []string {
	var msgs []string
	for _, err := range validation.IsValidIP(nil, name) {
		msgs = append(msgs, err.Detail)
	}
	return msgs
}

func validateIPAddress(_ context.Context, a *networkingv1.IPAddress) field.ErrorList {
	path, ref := field.NewPath("spec", "parentRef"), a.Spec.ParentRef
	if ref == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if ref.Group != "" {
		errs = append(errs, rules.Invalid(path.Child("group"), ref.Group,
			validation.IsDNS1123Subdomain(ref.Group))...)
	}
	errs = append(errs, validateSegment(ref.Resource, path.Child("resource"))...)
	errs = append(errs, validateSegment(ref.Name, path.Child("name"))...)
	return append(errs, rules.Invalid(path.Child("namespace"), ref.Namespace,
		content.IsPathSegmentName(ref.Namespace))...)
}

func validateIPAddressUpdate(ctx context.Context, a, old *networkingv1.IPAddress) field.ErrorList {
	errs := validateIPAddress(ctx, a)
	return append(errs, apivalidation.ValidateImmutableField(a.Spec.ParentRef, old.Spec.ParentRef,
		field.NewPath("spec", "parentRef"))...)
}
