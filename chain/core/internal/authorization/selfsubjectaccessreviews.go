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

var errNoUser = apierrors.NewBadRequest("the request has no user")

// SelfSubjectAccessReviews declares selfsubjectaccessreviews, which report whether the requesting
// user may do something.
func SelfSubjectAccessReviews(auth authorizer.UnconditionalAuthorizer) *kind.Virtual {
	type T = *authorizationv1.SelfSubjectAccessReview
	return &kind.Virtual{Plural: "selfsubjectaccessreviews", New: func() rest.Storage {
		return &kind.Act[T]{
			Singular: "selfsubjectaccessreview",
			Check: func(_ context.Context, review T) error {
				errs := validateAttributes(review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
				return refuse(append(errs, emptyMetadata(review.ObjectMeta, false)...))
			},
			Do: func(ctx context.Context, review T) (T, error) {
				u, ok := request.UserFrom(ctx)
				if !ok {
					return nil, errNoUser
				}
				review.Status = decide(ctx, auth, u, review.Spec.ResourceAttributes,
					review.Spec.NonResourceAttributes)
				return review, nil
			},
		}
	}}
}
