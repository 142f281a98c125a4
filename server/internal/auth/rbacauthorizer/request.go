package rbacauthorizer

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// request holds the attributes of a request that rules are matched against.
type request struct {
	verb string
	// url is set for non-resource requests.
	url string
	// resource includes the subresource, as in "pods/log". anySubresource is then "*/log".
	group, resource, anySubresource, name string
	onResource                            bool
}

func requestOf(a authorizer.Attributes) request {
	r := request{verb: a.GetVerb(), onResource: a.IsResourceRequest()}
	if !r.onResource {
		r.url = a.GetPath()
		return r
	}
	r.group, r.resource, r.name = a.GetAPIGroup(), a.GetResource(), a.GetName()
	if sub := a.GetSubresource(); sub != "" {
		r.resource += "/" + sub
		r.anySubresource = "*/" + sub
	}
	return r
}

// Allows reports whether any of the rules allows a request.
func Allows(a authorizer.Attributes, rules []rbacv1.PolicyRule) bool {
	r := requestOf(a)
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool { return r.allowedBy(&rule) })
}

func (r *request) allowedBy(rule *rbacv1.PolicyRule) bool {
	if !allOr(rule.Verbs, rbacv1.VerbAll, r.verb) {
		return false
	}
	if !r.onResource {
		return slices.ContainsFunc(rule.NonResourceURLs, func(pattern string) bool {
			prefix, open := strings.CutSuffix(pattern, "*")
			return pattern == r.url || open && strings.HasPrefix(r.url, strings.TrimRight(prefix, "*"))
		})
	}
	return allOr(rule.APIGroups, rbacv1.APIGroupAll, r.group) &&
		(allOr(rule.Resources, rbacv1.ResourceAll, r.resource) ||
			r.anySubresource != "" && slices.Contains(rule.Resources, r.anySubresource)) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.name))
}

func allOr(list []string, all, one string) bool {
	for _, e := range list {
		if e == one || e == all {
			return true
		}
	}
	return false
}
