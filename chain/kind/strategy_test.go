package kind

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestUnconditionalVersions(t *testing.T) {
	t.Parallel()
	k := &Kind[*corev1.ConfigMap]{
		RequireResourceVersion: true,
		Quirks:                 Quirks{UnconditionalVersions: []string{"v1beta1"}},
	}
	for version, want := range map[string]bool{"v1": false, "v1beta1": true} {
		ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{APIVersion: version})
		if got := (strategy{k: k.untyped()}).AllowUnconditionalUpdate(ctx); got != want {
			t.Errorf("%s: %t", version, got)
		}
	}
}
