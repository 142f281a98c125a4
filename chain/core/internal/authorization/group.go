package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group is the API group authorization.k8s.io: authorizer answers the access reviews, resolver lists rules.
func Group(authorizer authorizer.UnconditionalAuthorizer, resolver authorizer.RuleResolver) kind.Group {
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
