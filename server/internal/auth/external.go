package auth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/kinproc/kinproc/server/internal/reload"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// config returns the options as a configuration with one issuer.
func (i *OIDC) config() (*apiserver.AuthenticationConfiguration, error) {
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
func newExternal(c *Config, audiences []string, s *stopper.Stopper) (external, error) {
	e := external{anonymous: &apiserver.AnonymousAuthConfig{Enabled: c.Anonymous}}
	rules := IssuerRules{
		SigningAlgorithms: c.OIDC.SigningAlgs, Audiences: audiences, Own: c.ServiceAccounts.Issuers,
	}
	switch {
	case c.AuthenticationConfigFile != "":
		if err := e.readConfig(c, rules, s); err != nil {
			return e, c.Names.Wrong("AuthenticationConfigFile", "%w", err)
		}
	case c.OIDC.IssuerURL != "":
		config, err := c.OIDC.config()
		if err != nil {
			return e, c.Names.Wrong("OIDC.CAFile", "%w", err)
		}
		if e.issuers, err = NewIssuers(s.Context(), config, rules); err != nil {
			return e, c.Names.Wrong("OIDC", "%w", err)
		}
	}
	if w := c.TokenWebhook; w.ConfigFile != "" {
		var err error
		e.webhook, err = NewTokenWebhook(w.ConfigFile, w.Version, w.CacheTTL, audiences)
		if err != nil {
			return e, c.Names.Wrong("TokenWebhook.ConfigFile",
				"%w", err)
		}
	}
	return e, nil
}

// readConfig reads the configuration file, and follows its changes.
func (e *external) readConfig(c *Config, rules IssuerRules, s *stopper.Stopper) error {
	file := c.AuthenticationConfigFile
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	config, err := DecodeAuthentication(data)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	rules.SigningAlgorithms = AllSigningAlgorithms()
	issuers, err := NewIssuers(s.Context(), config, rules)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	e.issuers = issuers
	if config.Anonymous != nil {
		if c.DisableAnonymous {
			return fmt.Errorf("%s: anonymous cannot be combined with %s", file,
				c.Names.Of("DisableAnonymous"))
		}
		e.anonymous = config.Anonymous
	}
	reload.Follow(s, file, data, func(ctx context.Context, data []byte) error {
		changed, err := DecodeAuthentication(data)
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
