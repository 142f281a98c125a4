package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kinproc/kinproc/server/internal/auth"
	"github.com/kinproc/kinproc/server/internal/reload"
)

// OIDCOptions configure an OpenID Connect provider, whose tokens are accepted.
type OIDCOptions struct {
	// IssuerURL is the URL of the provider; it begins with https. ClientID is the audience that a
	// token must have.
	IssuerURL, ClientID string
	// CAFile holds the certificate authorities of the provider. Default: those of the machine.
	CAFile string
	// UsernameClaim is the claim with the name of the user. Default: sub.
	UsernameClaim string
	// UsernamePrefix is put before the name; "-" stands for none. Default: IssuerURL and "#", or
	// none if UsernameClaim is email.
	UsernamePrefix string
	// GroupsClaim is the claim with the groups of the user, and GroupsPrefix is put before each.
	GroupsClaim, GroupsPrefix string
	// SigningAlgs are the accepted algorithms. Default: RS256.
	SigningAlgs []string
	// RequiredClaims are the claims that a token must have, with their values.
	RequiredClaims map[string]string
}

// TokenWebhookOptions configure a webhook that is asked who the bearer of a token is.
type TokenWebhookOptions struct {
	// ConfigFile is a kubeconfig that leads to the webhook.
	ConfigFile string
	// Version is the version of the TokenReviews. Default: v1beta1, as in kube-apiserver.
	Version string
	// CacheTTL is how long answers are kept. Default: 2 minutes.
	CacheTTL time.Duration
}

const (
	defaultReviewVersion   = "v1beta1"
	defaultTokenWebhookTTL = 2 * time.Minute
)

func (o *Options) completeAuthentication() {
	if o.OIDC.UsernameClaim == "" {
		o.OIDC.UsernameClaim = "sub"
	}
	orDefault(&o.OIDC.SigningAlgs, "RS256")
	if o.TokenWebhook.Version == "" {
		o.TokenWebhook.Version = defaultReviewVersion
	}
	if o.TokenWebhook.CacheTTL == 0 && !o.flags { // a flag of 0 keeps nothing
		o.TokenWebhook.CacheTTL = defaultTokenWebhookTTL
	}
}

func (o *Options) addIssuerFlags(f *pflag.FlagSet) {
	f.StringVar(&o.AuthenticationConfigFile, "authentication-config", o.AuthenticationConfigFile,
		"file with an AuthenticationConfiguration: the issuers whose tokens are accepted, and what "+
			"anonymous users may reach; changes take effect at once")
	i := &o.OIDC
	f.StringVar(&i.IssuerURL, "oidc-issuer-url", i.IssuerURL,
		"URL of an OpenID Connect provider whose tokens are accepted")
	f.StringVar(&i.ClientID, "oidc-client-id", i.ClientID, "audience of those tokens")
	f.StringVar(&i.CAFile, "oidc-ca-file", i.CAFile,
		"certificate authorities of the provider; those of the machine if empty")
	f.StringVar(&i.UsernameClaim, "oidc-username-claim", i.UsernameClaim,
		"claim with the name of the user")
	f.StringVar(&i.UsernamePrefix, "oidc-username-prefix", i.UsernamePrefix,
		"prefix of user names; - for none")
	f.StringVar(&i.GroupsClaim, "oidc-groups-claim", i.GroupsClaim,
		"claim with the groups of the user")
	f.StringVar(&i.GroupsPrefix, "oidc-groups-prefix", i.GroupsPrefix, "prefix of groups")
	f.StringSliceVar(&i.SigningAlgs, "oidc-signing-algs", i.SigningAlgs,
		"algorithms by which tokens may be signed")
	f.Var(cliflag.NewMapStringStringNoSplit(&i.RequiredClaims), "oidc-required-claim",
		"claim that tokens must have, and its value: name=value; may be repeated")
	w := &o.TokenWebhook
	f.StringVar(&w.ConfigFile, "authentication-token-webhook-config-file", w.ConfigFile,
		"kubeconfig of a webhook that is asked who the bearer of a token is")
	f.StringVar(&w.Version, "authentication-token-webhook-version", w.Version,
		"version of the TokenReviews for that webhook: v1 or v1beta1")
	f.DurationVar(&w.CacheTTL, "authentication-token-webhook-cache-ttl", w.CacheTTL,
		"how long its answers are kept")
}

// validateAuthentication validates what can be known of the options without reading files.
func (o *Options) validateAuthentication() []error {
	var errs []error
	wrong := func(field, flag, format string, args ...any) {
		errs = append(errs, o.wrong(field, flag, format, args...))
	}
	i := o.OIDC
	given := i.CAFile != "" || i.UsernamePrefix != "" || i.GroupsClaim != "" || i.GroupsPrefix != "" ||
		len(i.RequiredClaims) > 0
	switch {
	case i.IssuerURL == "" && (given || i.ClientID != ""):
		wrong("OIDC.IssuerURL", "oidc-issuer-url", "it must be set for the other options of OIDC")
	case i.IssuerURL != "" && i.ClientID == "":
		wrong("OIDC.ClientID", "oidc-client-id", "it must be set with an issuer")
	case i.IssuerURL != "" && o.AuthenticationConfigFile != "":
		wrong("AuthenticationConfigFile", "authentication-config",
			"it cannot be combined with %s: put the issuer into the file",
			o.name("OIDC.IssuerURL", "oidc-issuer-url"))
	}
	if v := o.TokenWebhook.Version; !slices.Contains([]string{"v1", "v1beta1"}, v) {
		wrong("TokenWebhook.Version", "authentication-token-webhook-version",
			"%q is neither v1 nor v1beta1", v)
	}
	if ttl := o.TokenWebhook.CacheTTL; ttl < 0 {
		wrong("TokenWebhook.CacheTTL", "authentication-token-webhook-cache-ttl", "%s is negative", ttl)
	}
	return errs
}

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
