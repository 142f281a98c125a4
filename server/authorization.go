package server

import (
	"context"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/kinproc/kinproc/server/internal/auth"
	"github.com/kinproc/kinproc/server/internal/reload"
)

const (
	defaultAuthorizedTTL   = 5 * time.Minute
	defaultUnauthorizedTTL = 30 * time.Second
	// webhookTimeout is kube-apiserver's for the webhook of the flags.
	webhookTimeout = 30 * time.Second
)

// modes returns the authorization modes without a configuration file.
func (o *Options) modes() []string {
	if len(o.AuthorizationModes) == 0 {
		return []string{auth.ModeRBAC}
	}
	return o.AuthorizationModes
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
