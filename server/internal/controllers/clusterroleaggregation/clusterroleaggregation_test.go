package clusterroleaggregation

import (
	"context"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

func TestAggregates(t *testing.T) {
	t.Parallel()
	role := func(name string, labels map[string]string, resources ...string) *rbacv1.ClusterRole {
		r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		for _, resource := range resources {
			r.Rules = append(r.Rules, rbacv1.PolicyRule{
				Verbs:     []string{"get"},
				APIGroups: []string{""},
				Resources: []string{resource},
			})
		}
		return r
	}
	sum := func(name, of string, labels map[string]string) *rbacv1.ClusterRole {
		r := role(name, labels)
		r.AggregationRule = &rbacv1.AggregationRule{
			ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{of: ""}}},
		}
		return r
	}
	client := fake.NewClientset(
		role("b", map[string]string{"low": ""}, "pods", "services"),
		role("a", map[string]string{"low": ""}, "secrets", "pods"), role("other", nil, "nodes"),
		sum("lower", "low", map[string]string{"high": ""}), sum("upper", "high", nil),
	)
	factory := informers.NewSharedInformerFactory(client, 0)
	controller := New(client, factory.Rbac().V1().ClusterRoles())
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		factory.Shutdown()
	}()
	factory.Start(ctx.Done())
	go func() { done <- controller.Run(ctx) }()

	expect := func(name string, want ...string) {
		t.Helper()
		var got []string
		err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true,
			func(ctx context.Context) (bool, error) {
				r, err := client.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return false, err
				}
				got = nil
				for _, rule := range r.Rules {
					got = append(got, rule.Resources...)
				}
				return slices.Equal(got, want), nil
			})
		if err != nil {
			t.Fatalf("%s has rules for %v, want %v: %v", name, got, want, err)
		}
	}
	expect("lower", "secrets", "pods", "services")
	expect("upper", "secrets", "pods", "services")
	if _, err := client.RbacV1().ClusterRoles().Create(ctx,
		role("c", map[string]string{"low": ""}, "events"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("upper", "secrets", "pods", "services", "events")
	for _, name := range []string{"a", "b", "c"} {
		if err := client.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	expect("upper")
}
