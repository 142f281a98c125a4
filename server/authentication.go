package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/kinproc/kinproc/server/internal/auth"
	"github.com/kinproc/kinproc/server/internal/reload"
)

const (
	defaultReviewVersion   = "v1beta1"
	defaultTokenWebhookTTL = 2 * time.Minute
)

// config returns the options as a configuration with one issuer.
func (i *OIDCOptions) config() (*apiserver.AuthenticationConfiguration, error) {
	prefix := i.UsernamePrefix
	switch {
	case prefix == "-":
		prefix = ""
	case prefix == "" && i.UsernameClaim != "email":
		prefix = i.IssuerURL + "#"
	}
	jwt := apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{URL: i.IssuerURL, Audiences: []string{i.ClientID}},
		ClaimMappings: apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression{Claim: i.UsernameClaim, Prefix: &prefix},
		},
	}
	if i.GroupsClaim != "" {
		jwt.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{
			Claim: i.GroupsClaim, Prefix: &i.GroupsPrefix,
		}
	}
	if i.CAFile != "" {
		ca, err := os.ReadFile(i.CAFile)
		if err != nil {
			return nil, err
		}
		jwt.Issuer.CertificateAuthority = string(ca)
	}
	for claim, value := range i.RequiredClaims {
		jwt.ClaimValidationRules = append(jwt.ClaimValidationRules, apiserver.ClaimValidationRule{
			Claim: claim, RequiredValue: value,
		})
	}
	return &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{jwt}}, nil
}

// external holds the authenticators that ask somebody else, and who may be anonymous.
type external struct {
	issuers, webhook authenticator.Token
	anonymous        *apiserver.AnonymousAuthConfig
}

// newExternal creates the authenticators that the options name. It costs nothing if there are none.
func newExternal(p *plane, audiences []string) (external, error) {
	o := p.options
	e := external{anonymous: &apiserver.AnonymousAuthConfig{Enabled: o.anonymous()}}
	rules := auth.IssuerRules{
		SigningAlgorithms: o.OIDC.SigningAlgs, Audiences: audiences, Own: o.ServiceAccountIssuer,
	}
	switch {
	case o.AuthenticationConfigFile != "":
		if err := e.readConfig(p, rules); err != nil {
			return e, o.wrong("AuthenticationConfigFile", "authentication-config", "%w", err)
		}
	case o.OIDC.IssuerURL != "":
		config, err := o.OIDC.config()
		if err != nil {
			return e, o.wrong("OIDC.CAFile", "oidc-ca-file", "%w", err)
		}
		if e.issuers, err = auth.NewIssuers(p.stopper.Context(), config, rules); err != nil {
			return e, o.wrong("OIDC", "oidc-issuer-url", "%w", err)
		}
	}
	if w := o.TokenWebhook; w.ConfigFile != "" {
		var err error
		e.webhook, err = auth.NewTokenWebhook(w.ConfigFile, w.Version, w.CacheTTL, audiences)
		if err != nil {
			return e, o.wrong("TokenWebhook.ConfigFile", "authentication-token-webhook-config-file",
				"%w", err)
		}
	}
	return e, nil
}

// readConfig reads the configuration file, and follows its changes.
func (e *external) readConfig(p *plane, rules auth.IssuerRules) error {
	file := p.options.AuthenticationConfigFile
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	config, err := auth.DecodeAuthentication(data)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	rules.SigningAlgorithms = auth.AllSigningAlgorithms()
	issuers, err := auth.NewIssuers(p.stopper.Context(), config, rules)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	e.issuers = issuers
	if config.Anonymous != nil {
		if p.options.DisableAnonymous {
			return fmt.Errorf("%s: anonymous cannot be combined with %s", file,
				p.options.name("DisableAnonymous", "anonymous-auth"))
		}
		e.anonymous = config.Anonymous
	}
	reload.Follow(p.stopper, file, data, func(ctx context.Context, data []byte) error {
		changed, err := auth.DecodeAuthentication(data)
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(changed.Anonymous, config.Anonymous) {
			return errors.New("anonymous cannot change while the server runs")
		}
		return issuers.Replace(ctx, changed)
	})
	return nil
}
