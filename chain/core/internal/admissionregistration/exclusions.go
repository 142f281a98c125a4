package admissionregistration

import (
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind"
)

// Excluded returns the resources that policies and webhooks do not see: the reviews that answer
// authentication and authorization questions. Otherwise a policy on all resources would lock its
// owner out.
func Excluded() []schema.GroupResource {
	return []schema.GroupResource{
		{Group: authenticationv1.GroupName, Resource: "selfsubjectreviews"},
		{Group: authenticationv1.GroupName, Resource: "tokenreviews"},
		{Group: authorizationv1.GroupName, Resource: "localsubjectaccessreviews"},
		{Group: authorizationv1.GroupName, Resource: "selfsubjectaccessreviews"},
		{Group: authorizationv1.GroupName, Resource: "selfsubjectrulesreviews"},
		{Group: authorizationv1.GroupName, Resource: "subjectaccessreviews"},
	}
}

// webhookWarnings returns warnings about reserved names and about rules that name excluded
// resources, for which webhooks are never called.
func webhookWarnings[T interface {
	comparable
	kind.Object
}](hooks func(T) []webhook) func(ctx context.Context, obj, old T) []string {
	return func(ctx context.Context, obj, old T) []string {
		list := warnings(ctx, obj, old)
		for i, w := range hooks(obj) {
			for j := range w.Rules {
				at := field.NewPath("webhooks").Index(i).Child("rules").Index(j)
				for _, r := range excludedBy(w.Rules[j].APIGroups, w.Rules[j].APIVersions,
					w.Rules[j].Resources) {
					list = append(list, fmt.Sprintf("%s: webhooks are not called for %s", at, r))
				}
			}
		}
		return list
	}
}

// excludedBy returns the excluded resources that a rule names explicitly. A wildcard is not assumed
// to mean them.
func excludedBy(groups, versions, resources []string) []schema.GroupResource {
	var list []schema.GroupResource
	for _, r := range Excluded() {
		wild := slices.Contains(groups, "*") || slices.Contains(versions, "*") ||
			slices.Contains(resources, "*")
		if !wild && slices.Contains(groups, r.Group) && slices.Contains(resources, r.Resource) {
			list = append(list, r)
		}
	}
	return list
}
