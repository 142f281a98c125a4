package clusterroleaggregation

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/auth/rbacauthorizer"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Name is the name of the loop and of the field manager that applies the rules, as in
// kube-controller-manager.
const Name = "clusterrole-aggregation-controller"

// Loop is the loop of aggregated cluster roles.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "clusterrole-aggregation",
		Purpose: "fills in the rules of aggregated ClusterRoles",
		Begin:   begin,
	}
}

type controller struct {
	*loop.Controller
	roles cache.SharedIndexInformer
}

func begin(l *loop.Controller) loop.Work {
	c := &controller{l, l.Informer(&rbacv1.ClusterRole{})}
	// Any change of a role may affect any aggregated role.
	all := loop.On(c.roles, func(_, _ *rbacv1.ClusterRole) {
		for _, role := range c.all() {
			if role.AggregationRule != nil {
				c.Add(role.Name)
			}
		}
	})
	return loop.Work{Watches: []loop.Watch{all}, Sync: c.sync}
}

func (c *controller) all() []*rbacv1.ClusterRole {
	var all []*rbacv1.ClusterRole
	for _, obj := range c.roles.GetStore().List() {
		all = append(all, obj.(*rbacv1.ClusterRole))
	}
	return all
}

func (c *controller) sync(ctx context.Context, name string) (time.Duration, error) {
	role := loop.Get[rbacv1.ClusterRole](c.roles, name)
	if role == nil || role.AggregationRule == nil {
		return 0, nil
	}
	rules, err := rbacauthorizer.Aggregate(role, c.all())
	if err != nil {
		return 0, fmt.Errorf("read the aggregation rule: %w", err)
	}
	if equality.Semantic.DeepEqual(rules, role.Rules) {
		return 0, nil
	}
	_, err = c.Client.RbacV1().ClusterRoles().Apply(ctx, application(role, rules),
		metav1.ApplyOptions{FieldManager: Name, Force: true})
	if err = loop.IgnoreChanged(err); err != nil {
		return 0, fmt.Errorf("apply %d rules: %w", len(rules), err)
	}
	return 0, nil
}

func application(
	of *rbacv1.ClusterRole, rules []rbacv1.PolicyRule,
) *rbacapply.ClusterRoleApplyConfiguration {
	// Without the UID, applying would bring back a role that has just been deleted.
	role := rbacapply.ClusterRole(of.Name).WithUID(of.UID)
	// Not nil, so that applying no rules removes the existing ones.
	role.Rules = []rbacapply.PolicyRuleApplyConfiguration{}
	for _, rule := range rules {
		role.Rules = append(role.Rules, rbacapply.PolicyRuleApplyConfiguration{
			Verbs:           rule.Verbs,
			APIGroups:       rule.APIGroups,
			Resources:       rule.Resources,
			ResourceNames:   rule.ResourceNames,
			NonResourceURLs: rule.NonResourceURLs,
		})
	}
	return role
}
