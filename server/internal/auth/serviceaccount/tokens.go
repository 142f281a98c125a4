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
	// DefaultIssuer is who issues tokens unless told otherwise.
	DefaultIssuer = "https://kubernetes.default.svc"
	// legacyIssuer is the issuer of tokens in secrets, whatever the cluster.
	legacyIssuer = "kubernetes/serviceaccount"

	// warnOnlyLifetime is the lifetime that kubelets ask for the tokens of pods that did not ask for one. An hour and seven seconds: nobody
	// asks for that by chance.
	warnOnlyLifetime = 3607 * time.Second
	// extendedLifetime is for how long such a token is really accepted, for clients that do not reload it.
	extendedLifetime = 365 * 24 * time.Hour
)

// Options say which tokens are issued and accepted.
type Options struct {
	// Issuers are who issues tokens: the first one in those that are signed here, all in those that are accepted. The default is
	// [DefaultIssuer].
	Issuers []string
	// Audiences are what tokens for this API server are made out to; they default to Issuers.
	Audiences []string
	// Key signs tokens.
	Key crypto.Signer
	// PublicKeys are further keys with which accepted tokens may be signed.
	PublicKeys []crypto.PublicKey
	// MaxLifetime bounds what a token request gets; zero is no bound.
	MaxLifetime time.Duration
	// Extend lets the tokens that kubelets put into pods live for a year, and only notes their use after the time that was asked for.
	Extend bool
	// KeysURI is where the discovery document says that keys are to be found; it defaults to a path of the server's own.
	KeysURI string
	// Now is the clock; it defaults to time.Now.
	Now func() time.Time
}

// Tokens issues tokens and makes authenticators of them.
type Tokens struct {
	options   Options
	verifiers []verifier
}

var _ core.TokenIssuer = &Tokens{}

// New checks the keys.
func New(o Options) (*Tokens, error) {
	if o.Key == nil {
		return nil, errors.New("service account tokens need a key to be signed with")
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

// Audiences are what tokens for this API server are made out to.
func (t *Tokens) Audiences() []string { return t.options.Audiences }

// MaxLifetime bounds what a token request gets; zero is no bound.
func (t *Tokens) MaxLifetime() time.Duration { return t.options.MaxLifetime }

// claims are what a token says: those of bound tokens below kubernetes.io, and those of tokens in secrets.
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

// Issue signs a bound token. The token of a pod lives longer than asked for if [Options].Extend is set.
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
	if t.options.Extend && token.Pod != nil && token.Lifetime == warnOnlyLifetime && t.isAudience(token.Audiences) {
		bound.WarnAfter = jwt.NewNumericDate(expires)
		expires = now.Add(extendedLifetime)
	}
	id := uuid.NewString()
	audit.AddAuditAnnotation(ctx, serviceaccount.IssuedCredentialIDAuditAnnotationKey, credentialID(id))
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

// IssueForSecret signs the token that is kept in a secret of type kubernetes.io/service-account-token. It lives as long as the secret.
func (t *Tokens) IssueForSecret(account *corev1.ServiceAccount, secret *corev1.Secret) (string, error) {
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
	delete(token.Header, "typ") // kube-apiserver's tokens have none
	signed, err := token.SignedString(t.options.Key)
	if err != nil {
		return "", fmt.Errorf("sign a service account token: %w", err)
	}
	return signed, nil
}

func (t *Tokens) isAudience(audiences []string) bool {
	return !slices.ContainsFunc(audiences, func(a string) bool { return !slices.Contains(t.options.Audiences, a) })
}

// credentialID is how audit events and users' extras name a token.
func credentialID(id string) string { return "JTI=" + id }
