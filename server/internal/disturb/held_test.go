package disturb

import (
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
)

// What has been held back is told when it is shown.
func TestReleaseTellsEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h held
		h.hold()
		configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
		body := h.stream(t.Context(), io.NopCloser(strings.NewReader(
			`{"type":"ADDED","object":{"metadata":{"namespace":"default","name":"limits"}}}`+"\n"+
				`{"type":"DELETED","object":{"metadata":{"name":"node"}}}`+"\n")),
			Disturbance{Kind: Delayed, At: Op{Resource: configMaps}},
			"configmaps", false, nil, func() {})
		synctest.Wait() // until both are held back
		some, got := h.release()
		if want := []string{"ADDED configmaps default/limits", "DELETED configmaps node"}; !some ||
			!slices.Equal(got, want) {
			t.Errorf("released %q, want %q", got, want)
		}
		if some, again := h.release(); some {
			t.Errorf("released again: %q", again)
		}
		if err := body.Close(); err != nil {
			t.Error(err)
		}
	})
}
