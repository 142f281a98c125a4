package ownerrefs

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// TestSelects compares Selects with the parsed selector.
func TestSelects(t *testing.T) {
	t.Parallel()
	require := func(
		operator metav1.LabelSelectorOperator, key string, values ...string,
	) *metav1.LabelSelector {
		return &metav1.LabelSelector{
			MatchLabels: map[string]string{"app": "a"},
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: key, Operator: operator, Values: values},
			},
		}
	}
	sets := []map[string]string{
		nil, {"app": "a"}, {"app": "b"}, {"app": "a", "tier": ""}, {"app": "a", "tier": "x"},
		{"app": "a", "tier": "y"}, {"tier": "x"},
	}
	for _, s := range []*metav1.LabelSelector{
		nil, {}, {MatchLabels: map[string]string{"app": "a"}},
		require(metav1.LabelSelectorOpIn, "tier", "x", "z"),
		require(metav1.LabelSelectorOpIn, "tier", ""),
		require(metav1.LabelSelectorOpNotIn, "tier", "x", "z"),
		require(metav1.LabelSelectorOpExists, "tier"),
		require(metav1.LabelSelectorOpDoesNotExist, "tier"),
	} {
		parsed, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range sets {
			if got, want := Selects(s, set), parsed.Matches(labels.Set(set)); got != want {
				t.Errorf("%s selects %v: %t, want %t", parsed, set, got, want)
			}
		}
	}
}
