package policy

import (
	"testing"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func FuzzPodDisruptionBudget(f *testing.F) {
	kindtest.Fuzz(f, PodDisruptionBudgets(),
		`{"metadata":{"name":"p"},"spec":{"minAvailable":"50%","selector":{"matchLabels":{"a":"b"}}}}`,
		`{"spec":{"minAvailable":-1,"maxUnavailable":"101%","unhealthyPodEvictionPolicy":"AlwaysAllow","selector":{"matchExpressions":[{"key":"a","operator":"X"}]}},
		"status":{"disruptionsAllowed":-1,"conditions":[{"type":"DisruptionAllowed","status":"True","reason":"r","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
}
