package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/klog/v2"
)

// deletionLeeway is how long a token is still accepted after its bound object was marked for
// deletion. Pods need their tokens while they shut down.
const deletionLeeway = 60 * time.Second

// These errors appear in the status of token reviews, which clients may compare with
// kube-apiserver's.
var (
	errExpired     = errors.New("service account token has expired")
	errInvalidated = errors.New("service account token has been invalidated")
)

// InvalidSince is the label of token secrets that were invalidated by an administrator or because
// they were not used for a long time.
const InvalidSince = "kubernetes.io/legacy-token-invalid-since"

// LastUsed is the label of token secrets that has the day on which the token was last used
// (KEP-2799).
const LastUsed = "kubernetes.io/legacy-token-last-used"

// Authenticator returns an authenticator that accepts tokens whose service account and bound
// objects exist. If objects is nil, it does not check that.
func (t *Tokens) Authenticator(objects Objects) authenticator.Token {
	return &tokenAuthenticator{
		Tokens: t, objects: objects,
		parser: jwt.NewParser(
			jwt.WithTimeFunc(t.options.Now), jwt.WithStrictDecoding(),
			jwt.WithValidMethods([]string{"ES256", "ES384", "ES512", "RS256"}),
		),
	}
}

type tokenAuthenticator struct {
	*Tokens
	objects Objects
	parser  *jwt.Parser
}

// AuthenticateToken implements [authenticator.Token]. It leaves tokens of other issuers to other
// authenticators.
func (a *tokenAuthenticator) AuthenticateToken(
	ctx context.Context, token string,
) (*authenticator.Response, bool, error) {
	var c claims
	if strings.Count(token, ".") != 2 {
		return nil, false, nil
	}
	if _, _, err := a.parser.ParseUnverified(token, &c); err != nil {
		return nil, false, nil
	}
	if c.Issuer != legacyIssuer && !slices.Contains(a.options.Issuers, c.Issuer) {
		return nil, false, nil
	}
	c = claims{}
	if _, err := a.parser.ParseWithClaims(token, &c, a.key); err != nil {
		if errors.Is(err, jwt.ErrTokenExpired) {
			return nil, false, errExpired
		}
		return nil, false, fmt.Errorf("invalid service account token: %w", err)
	}

	audiences, err := a.audiences(ctx, c.Audience)
	if err != nil {
		return nil, false, err
	}
	var info *serviceaccount.ServiceAccountInfo
	if c.Issuer == legacyIssuer {
		info, err = a.checkLegacy(ctx, &c, token)
	} else {
		info, err = a.checkBound(ctx, &c)
	}
	if err != nil {
		return nil, false, err
	}
	return &authenticator.Response{User: info.UserInfo(), Audiences: audiences}, true, nil
}

// key returns the key that a token names, or all keys if it does not name a known key.
func (a *tokenAuthenticator) key(token *jwt.Token) (any, error) {
	id, _ := token.Header["kid"].(string)
	var set jwt.VerificationKeySet
	for _, v := range a.verifiers {
		if v.method.Alg() != token.Method.Alg() {
			continue
		}
		if v.id == id {
			return v.key, nil
		}
		set.Keys = append(set.Keys, v.key)
	}
	return set, nil
}

// audiences returns the intersection of the token's audiences with the audiences of the request,
// which default to this server's.
func (a *tokenAuthenticator) audiences(
	ctx context.Context, of []string,
) (authenticator.Audiences, error) {
	own := authenticator.Audiences(a.options.Audiences)
	if len(of) == 0 {
		of = own // tokens in secrets have no audience
	}
	wanted, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		wanted = own
	}
	both := authenticator.Audiences(of).Intersect(wanted)
	if len(both) == 0 {
		return nil, fmt.Errorf("token audiences %q is invalid for the target audiences %q", of, wanted)
	}
	return both, nil
}

// checkBound checks a bound token.
func (a *tokenAuthenticator) checkBound(
	ctx context.Context, c *claims,
) (*serviceaccount.ServiceAccountInfo, error) {
	k := c.Kubernetes
	switch {
	case k == nil || k.Namespace == "" || k.Account.Name == "" || k.Account.UID == "":
		return nil, errors.New("the token does not identify a service account")
	case c.ExpiresAt == nil:
		return nil, errors.New("the token has no expiration time")
	}
	info := &serviceaccount.ServiceAccountInfo{
		Namespace: k.Namespace,
		Name:      k.Account.Name,
		UID:       k.Account.UID,
	}
	if c.ID != "" {
		info.CredentialID = credentialID(c.ID)
	}
	if k.Pod != nil {
		info.PodName, info.PodUID = k.Pod.Name, k.Pod.UID
	}
	if k.Node != nil {
		info.NodeName, info.NodeUID = k.Node.Name, k.Node.UID
	}
	if err := a.lookUp(ctx, k); err != nil {
		return nil, err
	}
	if k.WarnAfter != nil {
		if overdue := a.options.Now().Sub(k.WarnAfter.Time); overdue > 0 {
			audit.AddAuditAnnotation(ctx, "authentication.k8s.io/stale-token",
				fmt.Sprintf("subject: %s, seconds after warning threshold: %.0f", c.Subject, overdue.Seconds()))
		}
	}
	return info, nil
}

// lookUp checks that the token's service account and bound objects exist.
func (a *tokenAuthenticator) lookUp(ctx context.Context, k *boundClaims) error {
	if a.objects == nil {
		return nil
	}
	if err := a.accountAlive(ctx, k.Namespace, k.Account.Name, k.Account.UID); err != nil {
		return err
	}
	if k.Secret != nil {
		secret, err := a.objects.Secret(ctx, k.Namespace, k.Secret.Name)
		if err := a.boundAlive(ctx, "secret", k.Secret.UID, secret, err); err != nil {
			return err
		}
	}
	if k.Pod != nil {
		pod, err := a.objects.Pod(ctx, k.Namespace, k.Pod.Name)
		return a.boundAlive(ctx, "pod", k.Pod.UID, pod, err) // the node of a pod is informational
	}
	if k.Node != nil {
		node, err := a.objects.Node(ctx, k.Node.Name)
		return a.boundAlive(ctx, "node", k.Node.UID, node, err)
	}
	return nil
}

func (a *tokenAuthenticator) accountAlive(ctx context.Context, namespace, name, uid string) error {
	account, err := a.objects.ServiceAccount(ctx, namespace, name)
	if err != nil {
		return err
	}
	if account.UID != types.UID(uid) {
		return fmt.Errorf("service account %s/%s was recreated: its UID is %s, not %s",
			namespace, name, account.UID, uid)
	}
	if a.gone(account) {
		return fmt.Errorf("service account %s/%s is being deleted", namespace, name)
	}
	return nil
}

// boundAlive checks a bound object, given the result and the error of its lookup.
func (a *tokenAuthenticator) boundAlive(
	ctx context.Context, what, uid string, o metav1.Object, err error,
) error {
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("look up the %s of a token: %w", what, err)
	case o.GetUID() != types.UID(uid):
		return fmt.Errorf("the token is bound to another %s %q: its UID is %s, not %s",
			what, o.GetName(), o.GetUID(), uid)
	case !a.gone(o):
		return nil
	}
	klog.FromContext(ctx).V(4).Info("Token is bound to an object that no longer exists", "kind",
		what, "uid", uid)
	return errInvalidated
}

func (a *tokenAuthenticator) gone(o metav1.Object) bool {
	deleted := o.GetDeletionTimestamp()
	return deleted != nil && a.options.Now().Sub(deleted.Time) > deletionLeeway
}

// checkLegacy checks a token that is stored in a secret. It is valid as long as the secret contains
// it.
func (a *tokenAuthenticator) checkLegacy(
	ctx context.Context, c *claims, token string,
) (*serviceaccount.ServiceAccountInfo, error) {
	if c.LegacyNamespace == "" || c.LegacyAccount == "" || c.LegacyUID == "" || c.LegacySecret == "" {
		return nil, errors.New("the token does not identify a service account and a secret")
	}
	if c.Subject != serviceaccount.MakeUsername(c.LegacyNamespace, c.LegacyAccount) {
		return nil, errors.New("the token's subject is not its service account")
	}
	info := &serviceaccount.ServiceAccountInfo{
		Namespace: c.LegacyNamespace,
		Name:      c.LegacyAccount,
		UID:       c.LegacyUID,
	}
	if a.objects == nil {
		return info, nil
	}
	secret, err := a.objects.Secret(ctx, c.LegacyNamespace, c.LegacySecret)
	if apierrors.IsNotFound(err) {
		return nil, errInvalidated
	}
	if err != nil {
		return nil, fmt.Errorf("look up the secret of a token: %w", err)
	}
	if a.gone(secret) || string(secret.Data["token"]) != token {
		return nil, errInvalidated
	}
	if since := secret.Labels[InvalidSince]; since != "" {
		return nil, fmt.Errorf("the token in secret %q has been invalid since %s", secret.Name, since)
	}
	if err := a.accountAlive(ctx, c.LegacyNamespace, c.LegacyAccount, c.LegacyUID); err != nil {
		return nil, err
	}
	audit.AddAuditAnnotation(ctx, "authentication.k8s.io/legacy-token", c.Subject)
	if today := a.options.Now().UTC().Format(time.DateOnly); secret.Labels[LastUsed] != today {
		if err := a.objects.LabelSecret(ctx, secret, LastUsed, today); err != nil {
			klog.FromContext(ctx).Error(err, "The use of a token was not recorded",
				"secret", klog.KObj(secret))
		}
	}
	return info, nil
}
