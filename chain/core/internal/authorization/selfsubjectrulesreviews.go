package authorization

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

// SelfSubjectRulesReviews declares selfsubjectrulesreviews, which list what the requesting user may
// do in a namespace.
func SelfSubjectRulesReviews(resolver authorizer.RuleResolver) *kind.Virtual {
	type T = *authorizationv1.SelfSubjectRulesReview
	return &kind.Virtual{Plural: "selfsubjectrulesreviews", New: func() rest.Storage {
		return &kind.Act[T]{
			Singular: "selfsubjectrulesreview",
			Check: func(ctx context.Context, review T) error {
				if _, ok := request.UserFrom(ctx); !ok {
					return errNoUser
				}
				if review.Spec.Namespace == "" {
					return apierrors.NewBadRequest("a SelfSubjectRulesReview requires a namespace")
				}
				return nil
			},
			Do: func(ctx context.Context, review T) (T, error) {
				u, _ := request.UserFrom(ctx)
				resources, others, incomplete, err := resolver.RulesFor(ctx, u, review.Spec.Namespace)
				// Both lists are required fields: when empty, they must be [] and not null.
				answer := &authorizationv1.SelfSubjectRulesReview{
					Status: authorizationv1.SubjectRulesReviewStatus{
						ResourceRules:    make([]authorizationv1.ResourceRule, 0, len(resources)),
						NonResourceRules: make([]authorizationv1.NonResourceRule, 0, len(others)),
						Incomplete:       incomplete,
					},
				}
				for _, r := range resources {
					answer.Status.ResourceRules = append(answer.Status.ResourceRules, authorizationv1.ResourceRule{
						Verbs:         r.GetVerbs(),
						APIGroups:     r.GetAPIGroups(),
						Resources:     r.GetResources(),
						ResourceNames: r.GetResourceNames(),
					})
				}
				for _, r := range others {
					answer.Status.NonResourceRules = append(answer.Status.NonResourceRules,
						authorizationv1.NonResourceRule{
							Verbs: r.GetVerbs(), NonResourceURLs: r.GetNonResourceURLs(),
						})
				}
				if err != nil {
					answer.Status.EvaluationError = err.Error()
				}
				return answer, nil
			},
		}
	}}
}
