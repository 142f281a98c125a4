package server

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/kinproc/kinproc/server/internal/auth"
	"github.com/kinproc/kinproc/server/internal/reload"
)

// AuthorizationWebhookOptions configure the webhook that is asked who may do what.
type AuthorizationWebhookOptions struct {
	// ConfigFile is a kubeconfig that leads to the webhook.
	ConfigFile string
	// Version is the version of the SubjectAccessReviews. Default: v1beta1, as in kube-apiserver.
	Version string
	// AuthorizedTTL and UnauthorizedTTL are how long answers are kept. Default: 5 minutes and 30
	// seconds.
	AuthorizedTTL, UnauthorizedTTL time.Duration
}

const (
	defaultAuthorizedTTL   = 5 * time.Minute
	defaultUnauthorizedTTL = 30 * time.Second
	// webhookTimeout is kube-apiserver's for the webhook of the flags.
	webhookTimeout = 30 * time.Second
)

func (o *Options) completeAuthorization() {
	w := &o.AuthorizationWebhook
	if w.Version == "" {
		w.Version = defaultReviewVersion
	}
	if o.flags { // a flag of 0 keeps nothing
		return
	}
	if w.AuthorizedTTL == 0 {
		w.AuthorizedTTL = defaultAuthorizedTTL
	}
	if w.UnauthorizedTTL == 0 {
		w.UnauthorizedTTL = defaultUnauthorizedTTL
	}
}

func (o *Options) addAuthorizationFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.AuthorizationModes, "authorization-mode", o.AuthorizationModes,
		"authorizers to ask, in order: "+strings.Join(auth.Modes(), ", ")+"; RBAC if empty")
	f.StringVar(&o.AuthorizationConfigFile, "authorization-config", o.AuthorizationConfigFile,
		"file with an AuthorizationConfiguration, instead of the other authorization flags; changes "+
			"take effect at once")
	w := &o.AuthorizationWebhook
	f.StringVar(&w.ConfigFile, "authorization-webhook-config-file", w.ConfigFile,
		"kubeconfig of the webhook of the authorization mode Webhook")
	f.StringVar(&w.Version, "authorization-webhook-version", w.Version,
		"version of the SubjectAccessReviews for that webhook: v1 or v1beta1")
	f.DurationVar(&w.AuthorizedTTL, "authorization-webhook-cache-authorized-ttl", w.AuthorizedTTL,
		"how long its answers that allow are kept")
	f.DurationVar(&w.UnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl",
		w.UnauthorizedTTL, "how long its other answers are kept")
}

// modes returns the authorization modes without a configuration file.
func (o *Options) modes() []string {
	if len(o.AuthorizationModes) == 0 {
		return []string{auth.ModeRBAC}
	}
	return o.AuthorizationModes
}

// validateAuthorization validates what can be known of the options without reading files.
func (o *Options) validateAuthorization() []error {
	var errs []error
	wrong := func(field, flag, format string, args ...any) {
		errs = append(errs, o.wrong(field, flag, format, args...))
	}
	for i, mode := range o.AuthorizationModes {
		if slices.Contains(o.AuthorizationModes[:i], mode) {
			wrong("AuthorizationModes", "authorization-mode", "%s is given twice", mode)
		}
		if !slices.Contains(auth.Modes(), mode) {
			wrong("AuthorizationModes", "authorization-mode", "%q is not one of %s", mode,
				strings.Join(auth.Modes(), ", "))
		}
	}
	w := o.AuthorizationWebhook
	asked := slices.Contains(o.AuthorizationModes, auth.ModeWebhook)
	switch {
	case o.AuthorizationConfigFile != "" && (len(o.AuthorizationModes) > 0 || w.ConfigFile != ""):
		wrong("AuthorizationConfigFile", "authorization-config",
			"it replaces the modes and the webhook, so they cannot be given too")
	case asked && w.ConfigFile == "":
		wrong("AuthorizationWebhook.ConfigFile", "authorization-webhook-config-file",
			"it must be set for the mode Webhook")
	case !asked && w.ConfigFile != "":
		wrong("AuthorizationWebhook.ConfigFile", "authorization-webhook-config-file",
			"nothing asks the webhook without the mode Webhook")
	}
	if !slices.Contains([]string{"v1", "v1beta1"}, w.Version) {
		wrong("AuthorizationWebhook.Version", "authorization-webhook-version",
			"%q is neither v1 nor v1beta1", w.Version)
	}
	if w.AuthorizedTTL < 0 {
		wrong("AuthorizationWebhook.AuthorizedTTL", "authorization-webhook-cache-authorized-ttl",
			"%s is negative", w.AuthorizedTTL)
	}
	if w.UnauthorizedTTL < 0 {
		wrong("AuthorizationWebhook.UnauthorizedTTL", "authorization-webhook-cache-unauthorized-ttl",
			"%s is negative", w.UnauthorizedTTL)
	}
	return errs
}

// authorizationConfig returns the configuration that the options name, and the content of its file
// if it comes from one.
func (o *Options) authorizationConfig() (*apiserver.AuthorizationConfiguration, []byte, error) {
	if file := o.AuthorizationConfigFile; file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		config, err := auth.DecodeAuthorization(data)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
		return config, data, nil
	}
	config := &apiserver.AuthorizationConfiguration{}
	for _, mode := range o.modes() {
		one := apiserver.AuthorizerConfiguration{Type: apiserver.AuthorizerType(mode), Name: mode}
		if w := &o.AuthorizationWebhook; mode == auth.ModeWebhook {
			one.Webhook = &apiserver.WebhookConfiguration{
				AuthorizedTTL:              metav1.Duration{Duration: w.AuthorizedTTL},
				CacheAuthorizedRequests:    w.AuthorizedTTL != 0,
				UnauthorizedTTL:            metav1.Duration{Duration: w.UnauthorizedTTL},
				CacheUnauthorizedRequests:  w.UnauthorizedTTL != 0,
				Timeout:                    metav1.Duration{Duration: webhookTimeout},
				FailurePolicy:              apiserver.FailurePolicyNoOpinion,
				SubjectAccessReviewVersion: w.Version,
				ConnectionInfo: apiserver.WebhookConnectionInfo{
					Type:           apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile,
					KubeConfigFile: &w.ConfigFile,
				},
			}
		}
		config.Authorizers = append(config.Authorizers, one)
	}
	return config, nil, nil
}

// newAuthorizer creates the authorizer, and follows the changes of its configuration file.
func newAuthorizer(p *plane, a auth.Authorization) (*auth.Authorizer, error) {
	o := p.options
	wrong := func(err error) error {
		if o.AuthorizationConfigFile != "" {
			return o.wrong("AuthorizationConfigFile", "authorization-config", "%w", err)
		}
		return o.wrong("AuthorizationModes", "authorization-mode", "%w", err)
	}
	config, data, err := o.authorizationConfig()
	if err != nil {
		return nil, wrong(err)
	}
	a.Config = config
	made, err := a.New()
	if err != nil {
		return nil, wrong(err)
	}
	if o.AuthorizationConfigFile != "" {
		reload.Follow(p.stopper, o.AuthorizationConfigFile, data, func(_ context.Context, data []byte) error {
			changed, err := auth.DecodeAuthorization(data)
			if err != nil {
				return err
			}
			return made.Replace(changed)
		})
	}
	return made, nil
}
