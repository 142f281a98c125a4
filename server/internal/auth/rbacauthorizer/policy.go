package rbacauthorizer

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	aggregateTo   = "rbac.authorization.k8s.io/aggregate-to-"
	accountsSpace = "kube-system"
)

// Policy is a set of roles and bindings.
type Policy struct {
	ClusterRoles        []*rbacv1.ClusterRole
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
	Roles               []*rbacv1.Role
	RoleBindings        []*rbacv1.RoleBinding
}

// Bootstrap returns the roles and bindings that kube-apiserver 1.37 creates in every cluster with
// these feature gates. The aggregating roles (admin, edit, view) already contain their rules, so
// that they work before the aggregation controller has run. Each call returns new objects.
func Bootstrap() *Policy {
	p := &Policy{}
	for _, r := range clusterRoles() {
		if !enabled(r.gate) {
			continue
		}
		p.ClusterRoles = append(p.ClusterRoles, &rbacv1.ClusterRole{
			ObjectMeta: metadata("", r.name),
			Rules:      r.policyRules(),
		})
	}
	for _, r := range controllers() {
		if !enabled(r.gate) {
			continue
		}
		name := "system:controller:" + r.name
		p.ClusterRoles = append(p.ClusterRoles, &rbacv1.ClusterRole{
			ObjectMeta: metadata("", name),
			Rules:      r.policyRules(),
		})
		b := binding{name: name, subjects: "account:" + accountsSpace + "/" + r.name}
		p.ClusterRoleBindings = append(p.ClusterRoleBindings, clusterRoleBinding(b))
	}
	for _, b := range clusterRoleBindings() {
		if enabled(b.gate) {
			p.ClusterRoleBindings = append(p.ClusterRoleBindings, clusterRoleBinding(b))
		}
	}
	for _, r := range roles() {
		p.Roles = append(p.Roles, &rbacv1.Role{
			ObjectMeta: metadata(r.namespace, r.name),
			Rules:      r.policyRules(),
		})
	}
	for _, b := range roleBindings() {
		p.RoleBindings = append(p.RoleBindings, &rbacv1.RoleBinding{
			ObjectMeta: metadata(b.namespace, b.name), Subjects: b.subjectList(), RoleRef: b.roleRef(),
		})
	}
	p.aggregate()
	return p
}

// NodeRules returns the rules of the role system:node.
func NodeRules() []rbacv1.PolicyRule {
	for _, r := range clusterRoles() {
		if r.name == "system:node" {
			return r.policyRules()
		}
	}
	return nil
}

// aggregate adds the user-facing roles view, edit and admin. Each of them includes the previous
// one.
func (p *Policy) aggregate() {
	for _, r := range p.ClusterRoles {
		if to, ok := strings.CutPrefix(r.Name, "system:aggregate-to-"); ok {
			r.Labels[aggregateTo+to] = "true"
		}
	}
	for _, r := range []struct{ name, to string }{{"view", "edit"}, {"edit", "admin"}, {"admin", ""}} {
		role := &rbacv1.ClusterRole{
			ObjectMeta: metadata("", r.name),
			AggregationRule: &rbacv1.AggregationRule{
				ClusterRoleSelectors: []metav1.LabelSelector{{
					MatchLabels: map[string]string{aggregateTo + r.name: "true"},
				}},
			},
		}
		if r.to != "" {
			role.Labels[aggregateTo+r.to] = "true"
		}
		// There is no error because the selectors above are valid.
		role.Rules, _ = Aggregate(role, p.ClusterRoles)
		p.ClusterRoles = append(p.ClusterRoles, role)
	}
}

// Aggregate returns the rules of the roles that an aggregating role selects, without duplicates.
// For each selector, the roles are sorted by name.
func Aggregate(role *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	rules := []rbacv1.PolicyRule{}
	if role.AggregationRule == nil {
		return rules, nil
	}
	all = slices.SortedFunc(slices.Values(all), func(a, b *rbacv1.ClusterRole) int {
		return strings.Compare(a.Name, b.Name)
	})
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, err
		}
		for _, other := range all {
			if other.Name == role.Name || !selector.Matches(labels.Set(other.Labels)) {
				continue
			}
			for _, rule := range other.Rules {
				if !slices.ContainsFunc(rules,
					func(have rbacv1.PolicyRule) bool { return sameRule(have, rule) }) {
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, nil
}

// Unaggregate removes the rules from the aggregating roles, which is how kube-apiserver creates
// them. It is used if the aggregation controller does not run.
func (p *Policy) Unaggregate() *Policy {
	for _, r := range p.ClusterRoles {
		if r.AggregationRule != nil {
			r.Rules = nil
		}
	}
	return p
}

// sameRule compares rules without reflection, because it is called thousands of times when a server
// starts.
func sameRule(a, b rbacv1.PolicyRule) bool {
	return slices.Equal(a.Resources, b.Resources) && slices.Equal(a.Verbs, b.Verbs) &&
		slices.Equal(a.APIGroups, b.APIGroups) && slices.Equal(a.ResourceNames, b.ResourceNames) &&
		slices.Equal(a.NonResourceURLs, b.NonResourceURLs)
}

// Objects returns all objects of the policy in an order in which they can be created, provided that
// their namespaces exist.
func (p *Policy) Objects() []runtime.Object {
	var all []runtime.Object
	for _, o := range p.ClusterRoles {
		all = append(all, o)
	}
	for _, o := range p.ClusterRoleBindings {
		all = append(all, o)
	}
	for _, o := range p.Roles {
		all = append(all, o)
	}
	for _, o := range p.RoleBindings {
		all = append(all, o)
	}
	return all
}

// metadata returns the metadata of an object, with the annotation that lets newer versions update
// it.
func metadata(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:   namespace,
		Name:        name,
		Labels:      map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"},
		Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
	}
}

func clusterRoleBinding(b binding) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metadata("", b.name),
		Subjects:   b.subjectList(),
		RoleRef:    b.roleRef(),
	}
}
