// Package bootstraptoken authenticates the tokens with which kubeadm and others join nodes. Each
// token is a secret in the namespace kube-system.
package bootstraptoken

import (
	"context"
	"crypto/subtle"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/util/secrets"
	tokenutil "k8s.io/cluster-bootstrap/util/tokens"
)

// New returns an authenticator that reads the secret of each token with the given client. The
// client itself must not authenticate with a bootstrap token.
func New(client coreclient.SecretsGetter) authenticator.Token {
	return &tokens{client.Secrets(metav1.NamespaceSystem)}
}

type tokens struct{ secrets coreclient.SecretInterface }

// AuthenticateToken implements [authenticator.Token].
func (t *tokens) AuthenticateToken(
	ctx context.Context, token string,
) (*authenticator.Response, bool, error) {
	id, key, err := tokenutil.ParseToken(token)
	if err != nil {
		return nil, false, nil // another kind of token
	}
	secret, err := t.secrets.Get(ctx, api.BootstrapTokenSecretPrefix+id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read the secret of bootstrap token %s: %w", id, err)
	}
	groups, err := secrets.GetGroups(secret)
	if err != nil || !valid(secret, id, key) {
		return nil, false, nil
	}
	node := &user.DefaultInfo{Name: api.BootstrapUserPrefix + id, Groups: groups}
	return &authenticator.Response{User: node}, true, nil
}

// valid reports whether a secret is that of the token with the given ID and key, and may be used
// for authentication now.
func valid(secret *corev1.Secret, id, key string) bool {
	is := func(name, value string) bool {
		return subtle.ConstantTimeCompare(secret.Data[name], []byte(value)) == 1
	}
	return secret.DeletionTimestamp == nil &&
		secret.Type == api.SecretTypeBootstrapToken &&
		is(api.BootstrapTokenSecretKey, key) &&
		is(api.BootstrapTokenIDKey, id) &&
		is(api.BootstrapTokenUsageAuthentication, "true") &&
		!secrets.HasExpired(secret, time.Now())
}
