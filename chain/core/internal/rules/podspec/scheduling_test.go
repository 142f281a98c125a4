package podspec

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestLongLists validates lists of as many elements as fit into a request. Comparing each with each
// would take minutes with the race detector.
func TestLongLists(t *testing.T) {
	t.Parallel()
	const n, patience = 100_000, 2 * time.Minute
	term := corev1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{}}
	constraints := make([]corev1.TopologySpreadConstraint, n/4)
	for i := range n {
		term.MatchLabelKeys = append(term.MatchLabelKeys, fmt.Sprint("a", i))
		term.MismatchLabelKeys = append(term.MismatchLabelKeys, fmt.Sprint("b", i))
	}
	term.MismatchLabelKeys[n-1] = "a7"
	for i := range constraints {
		constraints[i] = corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: fmt.Sprint("a", i), WhenUnsatisfiable: corev1.DoNotSchedule,
		}
	}
	constraints[5].TopologyKey = "a7"
	start := time.Now()
	errs := validateAffinityKeys(&term, field.NewPath("term"))
	if len(errs) != 1 || errs[0].Field != "term.matchLabelKeys[7]" {
		t.Errorf("the keys have the errors %v", errs)
	}
	errs = validateSpreadConstraints(constraints, field.NewPath("constraints"), Options{})
	if len(errs) != 1 || errs[0].Field != "constraints[5].{topologyKey, whenUnsatisfiable}" {
		t.Errorf("the constraints have the errors %v", errs)
	}
	if took := time.Since(start); took > patience {
		t.Errorf("it took %s", took)
	}
}
