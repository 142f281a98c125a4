package auth

import (
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/server/options"
	utilwebhook "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
)

// NewTokenWebhook returns an authenticator that asks a webhook, with TokenReviews of a version. The
// file is a kubeconfig. Answers are kept for a time, unless that is 0.
func NewTokenWebhook(
	file, version string, kept time.Duration, audiences []string,
) (authenticator.Token, error) {
	config, err := utilwebhook.LoadKubeconfig(file, nil)
	if err != nil {
		return nil, err
	}
	hook, err := webhook.New(config, version, audiences, *options.DefaultAuthWebhookRetryBackoff())
	if err != nil || kept == 0 {
		return hook, err
	}
	return cache.New(hook, false, kept, kept), nil
}
