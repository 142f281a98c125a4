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

// Excluded lists what policies and webhooks are not asked about: the questions who somebody is and what somebody may do. A policy on
// everything would otherwise lock its owner out.
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

// webhookWarnings warns, beside of names, of rules that name something excluded: they do nothing.
func webhookWarnings[T interface {
	comparable
	kind.Object
}](hooks func(T) []webhook) func(ctx context.Context, obj, old T) []string {
	return func(ctx context.Context, obj, old T) []string {
		list := warnings(ctx, obj, old)
		for i, w := range hooks(obj) {
			for j := range w.Rules {
				at := field.NewPath("webhooks").Index(i).Child("rules").Index(j)
				for _, r := range excludedBy(w.Rules[j].APIGroups, w.Rules[j].APIVersions, w.Rules[j].Resources) {
					list = append(list, fmt.Sprintf("%s: webhooks are not called for %s", at, r))
				}
			}
		}
		return list
	}
}

// excludedBy lists what is excluded of what a rule names. Wildcards are not meant for them.
func excludedBy(groups, versions, resources []string) []schema.GroupResource {
	var list []schema.GroupResource
	for _, r := range Excluded() {
		wild := slices.Contains(groups, "*") || slices.Contains(versions, "*") || slices.Contains(resources, "*")
		if !wild && slices.Contains(groups, r.Group) && slices.Contains(resources, r.Resource) {
			list = append(list, r)
		}
	}
	return list
}
