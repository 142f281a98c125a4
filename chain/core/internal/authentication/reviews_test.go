package authentication

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

func post[T kind.Object](ctx context.Context, d *kind.Virtual, review T) (T, error) {
	answer, err := d.New().(rest.Creater).Create(ctx, review, nil, nil)
	if err != nil {
		var none T
		return none, err
	}
	return answer.(T), nil
}

func TestTokenReviews(t *testing.T) {
	t.Parallel()
	requests := authenticator.RequestFunc(func(
		req *http.Request,
	) (*authenticator.Response, bool, error) {
		audiences, _ := authenticator.AudiencesFrom(req.Context())
		switch req.Header.Get("Authorization") {
		case "Bearer good":
			u := &user.DefaultInfo{
				Name:   "alice",
				UID:    "1",
				Groups: []string{"devs"},
				Extra:  map[string][]string{"k": {"v"}},
			}
			return &authenticator.Response{User: u, Audiences: audiences}, true, nil
		case "Bearer elsewhere":
			return &authenticator.Response{
				User:      &user.DefaultInfo{Name: "alice"},
				Audiences: authenticator.Audiences{"other"},
			}, true, nil
		}
		return nil, false, errors.New("unknown token")
	})
	d := TokenReviews(requests, authenticator.Audiences{"server"})
	review := func(token string, audiences ...string) (*authenticationv1.TokenReview, error) {
		r := &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
		}
		return post(t.Context(), d, r)
	}
	good, err := review("good")
	if err != nil || !good.Status.Authenticated || good.Status.User.Username != "alice" ||
		!slices.Equal(good.Status.User.Extra["k"], []string{"v"}) ||
		!slices.Equal(good.Status.Audiences, []string{"server"}) {
		t.Errorf("a good token: %+v, %v", good, err)
	}
	if r, err := review("good", "a", "b"); err != nil ||
		!slices.Equal(r.Status.Audiences, []string{"a", "b"}) {
		t.Errorf("a good token with audiences: %+v, %v", r, err)
	}
	posted := &authenticationv1.TokenReview{
		Spec:   authenticationv1.TokenReviewSpec{Token: "bad"},
		Status: authenticationv1.TokenReviewStatus{Audiences: []string{"a"}},
	}
	if r, err := post(t.Context(), d, posted); err != nil || r.Status.Authenticated ||
		len(r.Status.Audiences) != 1 {
		t.Errorf("a bad token, posted with a status: %+v, %v", r, err)
	}
	if r, err := review("bad"); err != nil || r.Status.Authenticated || r.Status.Error == "" {
		t.Errorf("a bad token: %+v, %v", r, err)
	}
	if _, err := review("elsewhere"); !apierrors.IsInternalError(err) {
		t.Errorf("a token for another audience: %v", err)
	}
	if _, err := review(""); !apierrors.IsBadRequest(err) {
		t.Errorf("no token: %v", err)
	}
}

func TestSelfSubjectReviews(t *testing.T) {
	t.Parallel()
	d := SelfSubjectReviews()
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"})
	r, err := post(ctx, d, &authenticationv1.SelfSubjectReview{})
	if err != nil || r.Status.UserInfo.Username != "alice" || r.CreationTimestamp.IsZero() {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := post(t.Context(), d,
		&authenticationv1.SelfSubjectReview{}); !apierrors.IsBadRequest(err) {
		t.Errorf("no user: %v", err)
	}
}
