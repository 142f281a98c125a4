package coordination

import (
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func expect(t *testing.T, name string, errs field.ErrorList, want ...string) {
	t.Helper()
	got := kindtest.Causes(errs)
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", name, got, want)
	}
}

func TestLeases(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec coordinationv1.LeaseSpec
		want []string
	}{
		"empty": {},
		"transitions": {
			coordinationv1.LeaseSpec{LeaseTransitions: new(int32(-1))},
			[]string{"spec.leaseTransitions Invalid"},
		},
		"preferred, no strategy": {
			coordinationv1.LeaseSpec{PreferredHolder: new("h")},
			[]string{"spec.preferredHolder Forbidden"},
		},
		"strategy of one's own": {coordinationv1.LeaseSpec{
			Strategy: new(coordinationv1.CoordinatedLeaseStrategy("example.com/s")),
		}, nil},
		"strategy nobody knows": {
			coordinationv1.LeaseSpec{Strategy: new(coordinationv1.CoordinatedLeaseStrategy("s"))},
			[]string{"spec.strategy.strategy NotSupported"},
		},
		"strategy with bad names": {
			coordinationv1.LeaseSpec{Strategy: new(coordinationv1.CoordinatedLeaseStrategy("a.b/-"))},
			[]string{"spec.strategy.strategy Invalid"},
		},
	} {
		expect(t, name, validateLease(t.Context(), &coordinationv1.Lease{Spec: c.spec}), c.want...)
	}
}

func TestLeaseCandidates(t *testing.T) {
	t.Parallel()
	valid := coordinationv1beta1.LeaseCandidateSpec{
		LeaseName:        "l",
		BinaryVersion:    "1.2.0",
		EmulationVersion: "1.1.0",
		Strategy:         coordinationv1.OldestEmulationVersion,
	}
	expect(t, "valid",
		validateCandidate(t.Context(), &coordinationv1beta1.LeaseCandidate{Spec: valid}))
	valid.EmulationVersion = "1.3.0"
	expect(t, "newer than itself", validateCandidate(t.Context(), &coordinationv1beta1.LeaseCandidate{
		Spec: valid,
	}), "spec.binaryVersion Invalid")
	expect(t, "empty", validateCandidate(t.Context(), &coordinationv1beta1.LeaseCandidate{}),
		"spec.binaryVersion Required", "spec.leaseName Required", "spec.strategy Required")
}
