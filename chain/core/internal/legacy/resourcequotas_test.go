package legacy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestQuotaScopeIsRefusedOnce has two resources that a scope does not support. The error says so
// once, although there is a cause for each.
func TestQuotaScopeIsRefusedOnce(t *testing.T) {
	t.Parallel()
	errs := validateQuotaSpec(&corev1.ResourceQuotaSpec{
		Hard:   amounts("pods", "1", "cpu", "1", "memory", "1Gi"),
		Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort},
	})
	if said := errs.ToAggregate(); len(errs) != 2 || len(said.Errors()) != 1 {
		t.Errorf("%d causes: %v", len(errs), said)
	}
}
