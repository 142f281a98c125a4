package auth

import (
	"context"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/kinproc/kinproc/server/internal/reload"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// webhookTimeout is kube-apiserver's for the webhook of the flags.
const webhookTimeout = 30 * time.Second

// modes returns the authorization modes without a configuration file.
func (c *Config) modes() []string {
	if len(c.AuthorizationModes) == 0 {
		return []string{ModeRBAC}
	}
	return c.AuthorizationModes
}

// authorizationConfig returns the configuration that the options name, and the content of its file
// if it comes from one.
func (c *Config) authorizationConfig() (*apiserver.AuthorizationConfiguration, []byte, error) {
	if file := c.AuthorizationConfigFile; file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		config, err := DecodeAuthorization(data)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
		return config, data, nil
	}
	config := &apiserver.AuthorizationConfiguration{}
	for _, mode := range c.modes() {
		one := apiserver.AuthorizerConfiguration{Type: apiserver.AuthorizerType(mode), Name: mode}
		if w := &c.AuthorizationWebhook; mode == ModeWebhook {
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
func newAuthorizer(c *Config, a Authorization, s *stopper.Stopper) (*Authorizer, error) {
	wrong := func(err error) error {
		if c.AuthorizationConfigFile != "" {
			return c.Names.Wrong("AuthorizationConfigFile", "%w", err)
		}
		return c.Names.Wrong("AuthorizationModes", "%w", err)
	}
	config, data, err := c.authorizationConfig()
	if err != nil {
		return nil, wrong(err)
	}
	a.Config = config
	made, err := a.New()
	if err != nil {
		return nil, wrong(err)
	}
	if c.AuthorizationConfigFile != "" {
		reload.Follow(s, c.AuthorizationConfigFile, data, func(_ context.Context, data []byte) error {
			changed, err := DecodeAuthorization(data)
			if err != nil {
				return err
			}
			return made.Replace(changed)
		})
	}
	return made, nil
}
