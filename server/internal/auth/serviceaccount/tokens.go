package serviceaccount

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/kinproc/kinproc/chain/core"
)

const (
	// DefaultIssuer is the default issuer of tokens.
	DefaultIssuer = "https://kubernetes.default.svc"
	// legacyIssuer is the issuer of tokens in secrets in every cluster.
	legacyIssuer = "kubernetes/serviceaccount"

	// warnOnlyLifetime is the lifetime that kubelets request for the tokens of pods that do not
	// specify one. One hour and seven seconds is a value that is not chosen by accident.
	warnOnlyLifetime = 3607 * time.Second
	// extendedLifetime is how long such a token is actually accepted, for clients that do not
	// reload it.
	extendedLifetime = 365 * 24 * time.Hour
)

// Options configures which tokens are issued and accepted.
type Options struct {
	// Issuers are the accepted issuers of tokens. New tokens have the first one. The default is
	// [DefaultIssuer].
	Issuers []string
	// Audiences are the audiences of this API server. The default is Issuers.
	Audiences []string
	// Key signs tokens.
	Key crypto.Signer
	// PublicKeys are additional keys that verify tokens.
	PublicKeys []crypto.PublicKey
	// MaxLifetime limits the lifetime of requested tokens. Zero means no limit.
	MaxLifetime time.Duration
	// Extend extends the lifetime of tokens that kubelets put into pods to a year. Their use after
	// the requested lifetime is only recorded in the audit log.
	Extend bool
	// KeysURI is the location of the keys in the discovery document. The default is a path of this
	// server.
	KeysURI string
	// Now is the clock; it defaults to time.Now.
	Now func() time.Time
}

// Tokens issues tokens and creates authenticators for them.
type Tokens struct {
	options   Options
	verifiers []verifier
}

var _ core.TokenIssuer = &Tokens{}

// New returns Tokens with the given options. It returns an error if a key is missing or not
// supported.
func New(o Options) (*Tokens, error) {
	if o.Key == nil {
		return nil, errors.New("a key to sign service account tokens is required")
	}
	if len(o.Issuers) == 0 {
		o.Issuers = []string{DefaultIssuer}
	}
	if len(o.Audiences) == 0 {
		o.Audiences = o.Issuers
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	t := &Tokens{options: o}
	for _, key := range append([]crypto.PublicKey{o.Key.Public()}, o.PublicKeys...) {
		v, err := newVerifier(key)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(t.verifiers, func(have verifier) bool { return have.id == v.id }) {
			t.verifiers = append(t.verifiers, v)
		}
	}
	return t, nil
}

// Audiences returns the audiences of this API server.
func (t *Tokens) Audiences() []string { return t.options.Audiences }

// MaxLifetime returns the maximum lifetime of requested tokens, or zero if there is no limit.
func (t *Tokens) MaxLifetime() time.Duration { return t.options.MaxLifetime }

// claims holds the claims of a token. Bound tokens have the kubernetes.io claim, and tokens in
// secrets have the legacy claims.
type claims struct {
	jwt.RegisteredClaims
	Kubernetes *boundClaims `json:"kubernetes.io,omitempty"`

	LegacyNamespace string `json:"kubernetes.io/serviceaccount/namespace,omitempty"`
	LegacySecret    string `json:"kubernetes.io/serviceaccount/secret.name,omitempty"`
	LegacyAccount   string `json:"kubernetes.io/serviceaccount/service-account.name,omitempty"`
	LegacyUID       string `json:"kubernetes.io/serviceaccount/service-account.uid,omitempty"`
}

type boundClaims struct {
	Namespace string           `json:"namespace,omitempty"`
	Node      *reference       `json:"node,omitempty"`
	Pod       *reference       `json:"pod,omitempty"`
	Secret    *reference       `json:"secret,omitempty"`
	Account   reference        `json:"serviceaccount,omitzero"`
	WarnAfter *jwt.NumericDate `json:"warnafter,omitempty"`
}

type reference struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

func refer(o metav1.Object) *reference {
	return &reference{Name: o.GetName(), UID: string(o.GetUID())}
}

// Issue issues a bound token. If [Options].Extend is set, the token of a pod may live longer than
// requested.
func (t *Tokens) Issue(ctx context.Context, token core.Token) (string, error) {
	now := t.options.Now()
	expires := now.Add(token.Lifetime)
	bound := &boundClaims{Namespace: token.Account.Namespace, Account: *refer(token.Account)}
	switch {
	case token.Pod != nil:
		bound.Pod = refer(token.Pod)
		if token.Node != nil {
			bound.Node = refer(token.Node)
		}
	case token.Secret != nil:
		bound.Secret = refer(token.Secret)
	case token.Node != nil:
		bound.Node = refer(token.Node)
	}
	if t.options.Extend && token.Pod != nil && token.Lifetime == warnOnlyLifetime &&
		t.isAudience(token.Audiences) {
		bound.WarnAfter = jwt.NewNumericDate(expires)
		expires = now.Add(extendedLifetime)
	}
	id := uuid.NewString()
	audit.AddAuditAnnotation(ctx, serviceaccount.IssuedCredentialIDAuditAnnotationKey,
		credentialID(id))
	return t.sign(claims{
		RegisteredClaims: jwt.RegisteredClaims{
			ID:        id,
			Issuer:    t.options.Issuers[0],
			Subject:   serviceaccount.MakeUsername(token.Account.Namespace, token.Account.Name),
			Audience:  token.Audiences,
			IssuedAt:  jwt.NewNumericDate(now),
			NotBefore: jwt.NewNumericDate(now),
			ExpiresAt: jwt.NewNumericDate(expires),
		},
		Kubernetes: bound,
	})
}

// IssueForSecret issues the token that is stored in a secret of type
// kubernetes.io/service-account-token. It is valid as long as the secret exists.
func (t *Tokens) IssueForSecret(
	account *corev1.ServiceAccount, secret *corev1.Secret,
) (string, error) {
	return t.sign(claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer:  legacyIssuer,
			Subject: serviceaccount.MakeUsername(account.Namespace, account.Name),
		},
		LegacyNamespace: account.Namespace,
		LegacySecret:    secret.Name,
		LegacyAccount:   account.Name,
		LegacyUID:       string(account.UID),
	})
}

func (t *Tokens) sign(c claims) (string, error) {
	own := t.verifiers[0]
	token := jwt.NewWithClaims(own.method, c)
	token.Header["kid"] = own.id
	delete(token.Header, "typ") // kube-apiserver's tokens do not have it
	signed, err := token.SignedString(t.options.Key)
	if err != nil {
		return "", fmt.Errorf("sign a service account token: %w", err)
	}
	return signed, nil
}

func (t *Tokens) isAudience(audiences []string) bool {
	return !slices.ContainsFunc(audiences, func(a string) bool {
		return !slices.Contains(t.options.Audiences, a)
	})
}

// credentialID returns the ID of a token in audit events and in the extra fields of users.
func credentialID(id string) string { return "JTI=" + id }
