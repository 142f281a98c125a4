package apitest

import (
	"testing"

	apiadmission "k8s.io/apiserver/pkg/admission"
)

func TestAdmissionPluginsOfPodGroupsAreIdle(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"PodGroupProtection", "PodGroupWorkloadExists", "JobValidation"} {
		p := newPlugin(t, name, nil)
		for _, operation := range []apiadmission.Operation{
			apiadmission.Create, apiadmission.Update, apiadmission.Delete,
		} {
			if p.Handles(operation) {
				t.Errorf("%s handles %s, but the feature is off", name, operation)
			}
		}
	}
}
