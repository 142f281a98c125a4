package authorization

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

// SubjectAccessReviews declares subjectaccessreviews, which report whether a user may do something.
func SubjectAccessReviews(auth authorizer.UnconditionalAuthorizer) *kind.Virtual {
	type T = *authorizationv1.SubjectAccessReview
	return &kind.Virtual{Plural: "subjectaccessreviews", New: func() rest.Storage {
		return &kind.Act[T]{
			Singular: "subjectaccessreview",
			Check: func(_ context.Context, review T) error {
				return refuse(append(validateSubject(&review.Spec), emptyMetadata(review.ObjectMeta, false)...))
			},
			Do: func(ctx context.Context, review T) (T, error) {
				review.Status = decide(ctx, auth, subject(&review.Spec), review.Spec.ResourceAttributes,
					review.Spec.NonResourceAttributes)
				return review, nil
			},
		}
	}}
}
