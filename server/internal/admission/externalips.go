package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// denyExternalIPs (DenyServiceExternalIPs) rejects new external IPs in services, because a service
// can use them to intercept traffic to any address (CVE-2020-8554). Off by default.
type denyExternalIPs struct{ *admission.Handler }

func newDenyExternalIPs() admission.Interface {
	return denyExternalIPs{admission.NewHandler(admission.Create, admission.Update)}
}

func (denyExternalIPs) Validate(
	_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	service, ok, err := plugin.Object[*corev1.Service](a, corev1.Resource("services"))
	if !ok {
		return err
	}
	var before []string
	if a.GetOldObject() != nil {
		old, err := plugin.Cast[*corev1.Service](a.GetOldObject())
		if err != nil {
			return err
		}
		before = old.Spec.ExternalIPs
	}
	for _, ip := range service.Spec.ExternalIPs {
		if !slices.Contains(before, ip) {
			return plugin.Forbid(a, "spec.externalIPs: external IP %s may not be added", ip)
		}
	}
	return nil
}
