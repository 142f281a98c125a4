package extensions

import (
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// No CRD is young, not even one from a time to which the clock has been set back since.
func TestInInformer(t *testing.T) {
	t.Parallel()
	for _, ago := range []time.Duration{-3 * time.Hour, 0, time.Second, time.Hour} {
		crd := &apiextensionsv1.CustomResourceDefinition{
			Status: apiextensionsv1.CustomResourceDefinitionStatus{
				Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{{
					Type: apiextensionsv1.Established, LastTransitionTime: metav1.NewTime(time.Now().Add(-ago)),
				}},
			},
		}
		inInformer(crd, newSharer())
		if age := time.Since(crd.Status.Conditions[0].LastTransitionTime.Time); age < youth {
			t.Errorf("a CRD that is %s old seems to be %s old", ago, age)
		}
	}
}
