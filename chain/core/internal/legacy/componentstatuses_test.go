package legacy

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestMissingComponentStatus checks that a NotFound error has the same details as in
// kube-apiserver.
func TestMissingComponentStatus(t *testing.T) {
	t.Parallel()
	_, err := componentStatuses{}.Get(t.Context(), "foo", nil)
	status, ok := err.(apierrors.APIStatus)
	if !ok || !apierrors.IsNotFound(err) {
		t.Fatalf("error %v", err)
	}
	if d := status.Status().Details; d.Kind != "componentstatus" || d.Name != "foo" {
		t.Errorf("details %v", d)
	}
}
