package policy

import (
	"testing"

	policyv1 "k8s.io/api/policy/v1"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func FuzzPodDisruptionBudget(f *testing.F) {
	kindtest.Fuzz[*policyv1.PodDisruptionBudget](f, PodDisruptionBudgets(),
		`{"metadata":{"name":"p"},"spec":{"minAvailable":"50%","selector":{"matchLabels":{"a":"b"}}}}`,
		`{"spec":{"minAvailable":-1,"maxUnavailable":"101%","unhealthyPodEvictionPolicy":"AlwaysAllow","selector":{"matchExpressions":[{"key":"a","operator":"X"}]}},
		"status":{"disruptionsAllowed":-1,"conditions":[{"type":"DisruptionAllowed","status":"True","reason":"r","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
}
