package admission_test

import (
	"testing"

	apiadmission "k8s.io/apiserver/pkg/admission"
)

func TestPodGroupProtectionIsIdle(t *testing.T) {
	t.Parallel()
	if newPlugin(t, "PodGroupProtection", nil).Handles(apiadmission.Create) {
		t.Error("it handles requests, but the feature is off")
	}
}
