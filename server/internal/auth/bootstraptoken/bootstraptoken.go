// Package bootstraptoken authenticates the tokens with which kubeadm and others join nodes. Each
// token is a secret in the namespace kube-system.
package bootstraptoken

import (
	"context"
	"crypto/subtle"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	secretPrefix = "bootstrap-token-"
	userPrefix   = "system:bootstrap:"
	defaultGroup = "system:bootstrappers"
)

var (
	// tokenPattern matches a token: its ID, which is public, and its secret.
	tokenPattern = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)
	// groupPattern matches the groups that a secret may add its user to.
	groupPattern = regexp.MustCompile(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)
)

// New returns an authenticator that reads the secret of each token with the given client. The
// client itself must not authenticate with a bootstrap token.
func New(client coreclient.SecretsGetter) authenticator.Token {
	return &tokens{secrets: client.Secrets(metav1.NamespaceSystem), now: time.Now}
}

type tokens struct {
	secrets coreclient.SecretInterface
	now     func() time.Time
}

// AuthenticateToken implements [authenticator.Token].
func (t *tokens) AuthenticateToken(
	ctx context.Context, token string,
) (*authenticator.Response, bool, error) {
	parts := tokenPattern.FindStringSubmatch(token)
	if parts == nil {
		return nil, false, nil // another kind of token
	}
	secret, err := t.secrets.Get(ctx, secretPrefix+parts[1], metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read the secret of bootstrap token %s: %w", parts[1], err)
	}
	groups, ok := groups(secret)
	if !ok || !t.valid(secret, parts[1], parts[2]) {
		return nil, false, nil
	}
	node := &user.DefaultInfo{Name: userPrefix + parts[1], Groups: groups}
	return &authenticator.Response{User: node}, true, nil
}

// valid reports whether a secret is that of the token with the given parts, and may be used for
// authentication now.
func (t *tokens) valid(secret *corev1.Secret, id, key string) bool {
	data := secret.Data
	return secret.DeletionTimestamp == nil &&
		secret.Type == corev1.SecretTypeBootstrapToken &&
		subtle.ConstantTimeCompare(data["token-secret"], []byte(key)) == 1 &&
		string(data["token-id"]) == id &&
		string(data["usage-bootstrap-authentication"]) == "true" &&
		!t.expired(string(data["expiration"]))
}

// expired reports whether a time has passed. A time that cannot be read counts as passed.
func (t *tokens) expired(expiration string) bool {
	if expiration == "" {
		return false
	}
	at, err := time.Parse(time.RFC3339, expiration)
	return err != nil || !at.After(t.now())
}

// groups returns the groups of the token's user. The result is not ok if the secret names a group
// that bootstrap tokens cannot be in.
func groups(secret *corev1.Secret) (groups []string, ok bool) {
	groups = []string{defaultGroup}
	if extra := string(secret.Data["auth-extra-groups"]); extra != "" {
		for group := range strings.SplitSeq(extra, ",") {
			if !groupPattern.MatchString(group) {
				return nil, false
			}
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups), true
}
