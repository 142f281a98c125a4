package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group authorization.k8s.io. authorizer answers access reviews, and resolver
// answers rules reviews.
func Group(
	authorizer authorizer.UnconditionalAuthorizer, resolver authorizer.RuleResolver,
) kind.Group {
	return kind.Group{
		Name:     authorizationv1.GroupName,
		Versions: []kind.GroupVersion{{Version: "v1", AddToScheme: authorizationv1.AddToScheme}},
		Kinds: []kind.Declaration{
			LocalSubjectAccessReviews(authorizer),
			SelfSubjectAccessReviews(authorizer),
			SelfSubjectRulesReviews(resolver),
			SubjectAccessReviews(authorizer),
		},
	}
}
