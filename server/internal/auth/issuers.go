package auth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
)

// configurations decodes the files of --authentication-config.
var configurations = sync.OnceValue(func() runtime.Decoder {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
})

// DecodeAuthentication decodes an AuthenticationConfiguration.
func DecodeAuthentication(data []byte) (*apiserver.AuthenticationConfiguration, error) {
	if len(data) == 0 {
		return nil, errors.New("it is empty")
	}
	decoded, err := runtime.Decode(configurations(), data)
	if err != nil {
		return nil, err
	}
	config, ok := decoded.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("it has a %T, not an AuthenticationConfiguration", decoded)
	}
	return config, nil
}

// IssuerRules are what holds for the tokens of all issuers.
type IssuerRules struct {
	// SigningAlgorithms are the accepted algorithms.
	SigningAlgorithms []string
	// Audiences are those of the API server, for which an accepted token is valid.
	Audiences []string
	// Own are the issuers of the API server itself, whose tokens no other issuer may sign.
	Own []string
}

// AllSigningAlgorithms returns the algorithms that a configuration in a file accepts.
func AllSigningAlgorithms() []string { return oidc.AllValidSigningAlgorithms() }

// Issuers authenticates the tokens of OpenID Connect providers and other issuers of JWTs. It
// fetches their keys until its context ends. Until the first keys of an issuer are there, the
// tokens of that issuer are refused.
type Issuers struct {
	ctx     context.Context
	rules   IssuerRules
	current atomic.Pointer[issuers]
	// retired are the issuers before the last change. Requests may still use them.
	retired *issuers
}

type issuers struct {
	authenticator.Token
	healthy []func() error
	cancel  context.CancelFunc
}

// NewIssuers returns an authenticator of the tokens that a configuration describes.
func NewIssuers(
	ctx context.Context, c *apiserver.AuthenticationConfiguration, rules IssuerRules,
) (*Issuers, error) {
	i := &Issuers{ctx: ctx, rules: rules}
	first, err := i.open(c)
	if err != nil {
		return nil, err
	}
	i.current.Store(first)
	return i, nil
}

func (i *Issuers) open(c *apiserver.AuthenticationConfiguration) (*issuers, error) {
	errs := validation.ValidateAuthenticationConfiguration(authenticationcel.NewDefaultCompiler(), c,
		i.rules.Own)
	if err := errs.ToAggregate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(i.ctx)
	opened := &issuers{cancel: cancel}
	var tokens []authenticator.Token
	for _, jwt := range c.JWT {
		options := oidc.Options{
			JWTAuthenticator:     jwt,
			SupportedSigningAlgs: i.rules.SigningAlgorithms,
			DisallowedIssuers:    i.rules.Own,
		}
		if ca := jwt.Issuer.CertificateAuthority; ca != "" {
			content, err := dynamiccertificates.NewStaticCAContent("issuer", []byte(ca))
			if err != nil {
				cancel()
				return nil, err
			}
			options.CAContentProvider = content
		}
		one, err := oidc.New(ctx, options)
		if err != nil {
			cancel()
			return nil, err
		}
		tokens, opened.healthy = append(tokens, one), append(opened.healthy, one.HealthCheck)
	}
	opened.Token = authenticator.WrapAudienceAgnosticToken(i.rules.Audiences,
		tokenunion.NewFailOnError(tokens...))
	return opened, nil
}

// AuthenticateToken implements authenticator.Token.
func (i *Issuers) AuthenticateToken(
	ctx context.Context, token string,
) (*authenticator.Response, bool, error) {
	return i.current.Load().AuthenticateToken(ctx, token)
}

const (
	// issuerPatience is how long new issuers may take to answer before they are given up.
	issuerPatience = time.Minute
	issuerInterval = 100 * time.Millisecond
)

// Replace replaces the issuers as soon as the new ones answer. If one of them does not, the old
// ones stay. Only one call may be active.
func (i *Issuers) Replace(ctx context.Context, c *apiserver.AuthenticationConfiguration) error {
	next, err := i.open(c)
	if err != nil {
		return err
	}
	var unhealthy error
	if err := wait.PollUntilContextTimeout(ctx, issuerInterval, issuerPatience, true,
		func(context.Context) (bool, error) {
			var errs []error
			for _, check := range next.healthy {
				errs = append(errs, check())
			}
			unhealthy = errors.Join(errs...)
			return unhealthy == nil, nil
		}); err != nil {
		next.cancel()
		return errors.Join(err, unhealthy)
	}
	if i.retired != nil {
		i.retired.cancel()
	}
	i.retired = i.current.Swap(next)
	return nil
}
