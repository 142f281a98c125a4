package authentication

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

// SelfSubjectReviews declares selfsubjectreviews, which return the user that the server sees in the
// request.
func SelfSubjectReviews() *kind.Virtual {
	type T = *authenticationv1.SelfSubjectReview
	return &kind.Virtual{Plural: "selfsubjectreviews", New: func() rest.Storage {
		return &kind.Act[T]{Singular: "selfsubjectreview", Do: func(ctx context.Context, _ T) (T, error) {
			u, ok := request.UserFrom(ctx)
			if !ok {
				return nil, apierrors.NewBadRequest("the request has no user")
			}
			return &authenticationv1.SelfSubjectReview{
				ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Now()},
				Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{
					Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra(u.GetExtra()),
				}},
			}, nil
		}}
	}}
}
