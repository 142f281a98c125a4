package node

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func TestRuntimeClasses(t *testing.T) {
	t.Parallel()
	k := RuntimeClasses()
	old := &nodev1.RuntimeClass{Handler: "runsc"}
	for name, c := range map[string]struct {
		class nodev1.RuntimeClass
		want  string
	}{
		"same":  {nodev1.RuntimeClass{Handler: "runsc"}, ""},
		"other": {nodev1.RuntimeClass{Handler: "kata"}, "handler Invalid"},
		"bad key": {nodev1.RuntimeClass{
			Handler:    "runsc",
			Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"a b": ""}},
		}, "scheduling.nodeSelector Invalid"},
		"toleration": {nodev1.RuntimeClass{
			Handler:    "runsc",
			Scheduling: &nodev1.Scheduling{Tolerations: []corev1.Toleration{{Operator: "Equal"}}},
		},
			"scheduling.tolerations[0].operator Invalid"},
		"same toleration, for other times": {nodev1.RuntimeClass{
			Handler: "runsc",
			Scheduling: &nodev1.Scheduling{Tolerations: []corev1.Toleration{
				{Key: "a", Effect: "NoExecute", TolerationSeconds: new(int64(1))},
				{Key: "a", Effect: "NoExecute", TolerationSeconds: new(int64(2))}}},
		},
			"scheduling.tolerations[1] Duplicate"},
	} {
		got := strings.Join(kindtest.Causes(k.ValidateUpdate(t.Context(), &c.class, old)), ", ")
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
