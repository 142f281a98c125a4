package flowcontrolbootstrap

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
)

// TestDesired checks which objects the server updates and which ones it leaves to the operator.
func TestDesired(t *testing.T) {
	t.Parallel()
	schemas := objects[*flowcontrolv1.FlowSchema]{
		spec:  func(f *flowcontrolv1.FlowSchema) any { return f.Spec },
		adopt: func(f, wanted *flowcontrolv1.FlowSchema) { wanted.Spec.DeepCopyInto(&f.Spec) },
	}
	wanted := bootstrap.SuggestedFlowSchemas[0]
	for name, test := range map[string]struct {
		annotation           string
		generation           int64
		mandatory            bool
		touched              bool
		updated, wantChanged bool
		wantAnnotation       string
	}{
		"up to date": {
			annotation:     "true",
			generation:     1,
			updated:        true,
			wantAnnotation: "true",
		},
		"changed, server's": {
			annotation:     "true",
			generation:     2,
			touched:        true,
			updated:        true,
			wantChanged:    true,
			wantAnnotation: "true",
		},
		"changed, operator's": {
			annotation:     "false",
			generation:     2,
			touched:        true,
			wantAnnotation: "false",
		},
		"changed, unmarked, older": {
			generation:     1,
			touched:        true,
			updated:        true,
			wantChanged:    true,
			wantAnnotation: "true",
		},
		"changed, unmarked, operator's": {
			generation:     2,
			touched:        true,
			wantChanged:    true,
			wantAnnotation: "false",
		},
		"nonsense": {
			annotation:     "maybe",
			generation:     2,
			touched:        true,
			wantChanged:    true,
			wantAnnotation: "false",
		},
		"mandatory, operator's": {
			annotation:     "false",
			generation:     2,
			touched:        true,
			mandatory:      true,
			updated:        true,
			wantChanged:    true,
			wantAnnotation: "true",
		},
	} {
		obj := wanted.DeepCopy()
		obj.Generation = test.generation
		obj.Annotations = map[string]string{"other": "a"}
		if test.annotation != "" {
			obj.Annotations[flowcontrolv1.AutoUpdateAnnotationKey] = test.annotation
		}
		if test.touched {
			obj.Spec.MatchingPrecedence = 77
		}
		got, changed := schemas.desired(obj, wanted, test.mandatory)
		if changed != test.wantChanged {
			t.Errorf("%s: changed is %v", name, changed)
		}
		if updated := got.Spec.MatchingPrecedence == wanted.Spec.MatchingPrecedence; updated !=
			test.updated {
			t.Errorf("%s: the spec's precedence is %d", name, got.Spec.MatchingPrecedence)
		}
		if got.Annotations[flowcontrolv1.AutoUpdateAnnotationKey] != test.wantAnnotation ||
			got.Annotations["other"] != "a" {
			t.Errorf("%s: annotations are %v", name, got.Annotations)
		}
	}
}
