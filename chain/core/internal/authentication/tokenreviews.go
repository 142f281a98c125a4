package authentication

import (
	"context"
	"errors"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kinproc/kinproc/chain/kind"
)

// TokenReviews declares tokenreviews, which return the user that a bearer token belongs to.
func TokenReviews(requests authenticator.Request, audiences authenticator.Audiences) *kind.Virtual {
	type T = *authenticationv1.TokenReview
	return &kind.Virtual{Plural: "tokenreviews", New: func() rest.Storage {
		return &kind.Act[T]{
			Singular: "tokenreview",
			Check: func(_ context.Context, review T) error {
				if review.Spec.Token == "" {
					return apierrors.NewBadRequest("token is required for TokenReview in authentication")
				}
				return nil
			},
			Do: func(ctx context.Context, review T) (T, error) {
				if requests == nil {
					return review, nil
				}
				return review, reviewToken(ctx, requests, audiences, review)
			},
		}
	}}
}

// reviewToken authenticates a request that consists of the token only.
func reviewToken(
	ctx context.Context, requests authenticator.Request, audiences authenticator.Audiences,
	review *authenticationv1.TokenReview,
) error {
	if len(review.Spec.Audiences) > 0 {
		audiences = review.Spec.Audiences
	}
	if len(audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, audiences)
	}
	// Drop warnings about the reviewed token: the caller is only warned about the token of its own
	// request.
	ctx = warning.WithWarningRecorder(ctx, nil)
	req := (&http.Request{
		Header: http.Header{"Authorization": {"Bearer " + review.Spec.Token}},
	}).WithContext(ctx)
	response, ok, err := requests.AuthenticateRequest(req)
	// The rest of the posted status is kept unless the response overwrites it.
	status := &review.Status
	status.Authenticated = ok
	if err != nil {
		status.Error = err.Error()
	}
	if response != nil {
		if len(audiences) > 0 && len(audiences.Intersect(response.Audiences)) == 0 {
			return apierrors.NewInternalError(errors.New("the authenticator accepted a token that is not " +
				"valid for any of the requested audiences"))
		}
		if u := response.User; u != nil {
			status.User = authenticationv1.UserInfo{
				Username: u.GetName(),
				UID:      u.GetUID(),
				Groups:   u.GetGroups(),
				Extra:    extra(u.GetExtra()),
			}
			status.Audiences = response.Audiences
		}
	}
	return nil
}
