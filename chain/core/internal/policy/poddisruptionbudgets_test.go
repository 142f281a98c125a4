package policy

import (
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func TestPodDisruptionBudgets(t *testing.T) {
	t.Parallel()
	k := PodDisruptionBudgets()
	for name, c := range map[string]struct {
		spec policyv1.PodDisruptionBudgetSpec
		want string
	}{
		"empty": {},
		"percent": {
			policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromString("100%"))}, "",
		},
		"more": {
			policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromString("101%"))},
			"spec.maxUnavailable Invalid",
		},
		"negative": {
			policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(-1))},
			"spec.minAvailable Invalid",
		},
	} {
		got := strings.Join(kindtest.Causes(k.Validate(t.Context(), &policyv1.PodDisruptionBudget{
			Spec: c.spec,
		})), ", ")
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	status := policyv1.PodDisruptionBudget{
		Status: policyv1.PodDisruptionBudgetStatus{ExpectedPods: -1},
	}
	if errs := k.Status.Validate(t.Context(), &status,
		&policyv1.PodDisruptionBudget{}); len(errs) != 1 {
		t.Errorf("status with -1 expected pods: %v", errs)
	}
}
