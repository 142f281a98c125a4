package kind

import (
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Values look as kube-apiserver shows them.
func TestGoNames(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		value any
		want  string
	}{
		{rbacv1.RoleRef{APIGroup: "g", Kind: "ClusterRole", Name: "edit"},
			`{"APIGroup":"g","Kind":"ClusterRole","Name":"edit"}`},
		{&policyv1.PodDisruptionBudgetSpec{
			MinAvailable:   new(intstr.FromInt32(1)),
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
			MaxUnavailable: new(intstr.FromInt32(1)),
		}, `{"MinAvailable":1,"Selector":{"matchLabels":{"app":"x"}},"MaxUnavailable":1,` +
			`"UnhealthyPodEvictionPolicy":null}`},
		{[]rbacv1.Subject{{Kind: "User"}},
			`[{"Kind":"User","APIGroup":"","Name":"","Namespace":""}]`},
		{"text", `"text"`},
		{nil, "null"},
	} {
		errs := withGoNames(field.ErrorList{field.Invalid(field.NewPath("f"), test.value, "detail")})
		if got := errs[0].Error(); !strings.Contains(got, "Invalid value: "+test.want+": detail") {
			t.Errorf("%v: %s", test.value, got)
		}
	}
}

// Each of many errors about a list may have the whole list as its value. Clients are told the first
// ones, and each of a few.
func TestErrorsAreBounded(t *testing.T) {
	t.Parallel()
	list := make([]string, 1000)
	var errs field.ErrorList
	for i := range list {
		errs = append(errs, field.Invalid(field.NewPath("list").Index(i), list, "detail"))
	}
	if n := len(bounded(errs[:3])); n != 3 {
		t.Errorf("%d errors of 3", n)
	}
	first := bounded(errs)
	if size := len(first.ToAggregate().Error()); size < mostOfErrors || size > 2*mostOfErrors {
		t.Errorf("%d errors with %d bytes, want about %d bytes", len(first), size, mostOfErrors)
	}
}
