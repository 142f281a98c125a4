package rbacauthorizer

import (
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-base/featuregate"

	"github.com/kinproc/kinproc/chain/features"
)

// Common combinations of verbs.
const (
	read      = "get list watch"
	write     = "create delete deletecollection patch update"
	readWrite = "create delete deletecollection get list patch update watch"
)

// rule is a compact form of a policy rule, in which lists are separated by spaces. "core" stands
// for the API group with the empty name.
type rule struct {
	verbs, groups, resources, names, urls string
	// gate is the feature gate without which the rule does not exist, if any.
	gate featuregate.Feature
}

// events lets a component write events.
var events = rule{verbs: "create patch update", groups: "core events.k8s.io", resources: "events"}

func (r rule) policyRule() rbacv1.PolicyRule {
	p := rbacv1.PolicyRule{
		Verbs:           strings.Fields(r.verbs),
		APIGroups:       words(r.groups),
		Resources:       words(r.resources),
		ResourceNames:   words(r.names),
		NonResourceURLs: words(r.urls),
	}
	for i, group := range p.APIGroups {
		if group == "core" {
			p.APIGroups[i] = ""
		}
	}
	return p
}

// words splits s at spaces. It returns nil if s is empty, like a decoder for an absent field.
func words(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Fields(s)
}

// role is a role, or a cluster role if it has no namespace.
type role struct {
	namespace, name string
	rules           []rule
	// gate is the feature gate without which the role does not exist, if any.
	gate featuregate.Feature
}

func (r role) policyRules() []rbacv1.PolicyRule {
	rules := make([]rbacv1.PolicyRule, 0, len(r.rules))
	for _, rule := range r.rules {
		if enabled(rule.gate) {
			rules = append(rules, rule.policyRule())
		}
	}
	return rules
}

func enabled(gate featuregate.Feature) bool { return gate == "" || features.Enabled(gate) }

// Gates says which feature gates are on, of those that roles and bindings depend on.
func Gates() string {
	on := monitoringURLs()
	for _, gate := range gates() {
		if enabled(gate) {
			on += " " + string(gate)
		}
	}
	return on
}

// gates returns the feature gates in the tables.
var gates = sync.OnceValue(func() []featuregate.Feature {
	var all []featuregate.Feature
	for _, r := range slices.Concat(clusterRoles(), controllers()) {
		all = append(all, r.gate)
		for _, rule := range r.rules {
			all = append(all, rule.gate)
		}
	}
	for _, b := range clusterRoleBindings() {
		all = append(all, b.gate)
	}
	slices.Sort(all)
	return slices.Compact(all)
})

// binding is a role binding, or a cluster role binding if it has no namespace. Its subjects are
// separated by spaces: user:NAME, group:NAME or account:NAMESPACE/NAME.
type binding struct {
	namespace, name string
	// role defaults to the binding's name.
	role     string
	subjects string
	// gate is the feature gate without which the binding does not exist, if any.
	gate featuregate.Feature
}

func (b binding) roleRef() rbacv1.RoleRef {
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: b.role}
	if b.namespace != "" {
		ref.Kind = "Role"
	}
	if b.role == "" {
		ref.Name = b.name
	}
	return ref
}

func (b binding) subjectList() []rbacv1.Subject {
	var subjects []rbacv1.Subject
	for _, word := range words(b.subjects) {
		switch kind, name, _ := strings.Cut(word, ":"); kind {
		case "user":
			subjects = append(subjects, rbacv1.Subject{
				APIGroup: rbacv1.GroupName,
				Kind:     rbacv1.UserKind,
				Name:     name,
			})
		case "group":
			subjects = append(subjects, rbacv1.Subject{
				APIGroup: rbacv1.GroupName,
				Kind:     rbacv1.GroupKind,
				Name:     name,
			})
		case "account":
			namespace, name, _ := strings.Cut(name, "/")
			subjects = append(subjects, rbacv1.Subject{
				Kind:      rbacv1.ServiceAccountKind,
				Namespace: namespace,
				Name:      name,
			})
		}
	}
	return subjects
}
