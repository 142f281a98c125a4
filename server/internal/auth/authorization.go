package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/load"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/apiserver/pkg/server/options"
	utilwebhook "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/auth/nodeauthorizer"
	"github.com/kinproc/kinproc/server/internal/auth/rbacauthorizer"
)

// Modes of authorization.
const (
	ModeRBAC        = "RBAC"
	ModeNode        = "Node"
	ModeAlwaysAllow = "AlwaysAllow"
	ModeAlwaysDeny  = "AlwaysDeny"
	ModeWebhook     = "Webhook"
)

// Modes returns all modes of authorization.
func Modes() []string {
	return []string{ModeRBAC, ModeNode, ModeWebhook, ModeAlwaysAllow, ModeAlwaysDeny}
}

// Authorization configures the authorizers.
type Authorization struct {
	// Modes are the authorization modes. They are asked in this order until one allows or denies
	// the request. The default is [ModeNode], [ModeRBAC].
	Modes []string
	// Config, if set, replaces Modes. It may have several webhooks.
	Config *apiserver.AuthorizationConfiguration
	// Roles is the source of the roles and bindings for [ModeRBAC].
	Roles rbacauthorizer.Source
	// Client reads the objects that are related to a node for [ModeNode].
	Client kubernetes.Interface
}

// Authorizer authorizes requests and lists the rules that it knows for a user.
type Authorizer struct {
	roles *rbacauthorizer.Authorizer
	// links are the authorizers that keep their state when the configuration changes, by their
	// modes.
	links   map[string]link
	current atomic.Pointer[chain]
}

// link is an authorizer that lists the rules that it knows.
type link interface {
	authorizer.Authorizer
	authorizer.RuleResolver
}

// chain are the links in the order in which they are asked.
type chain struct {
	authorizer.Authorizer
	authorizer.RuleResolver
}

// RulesOf returns the rules that roles grant a user in a namespace, or in the whole cluster if the
// namespace is empty. It works in every mode, because a user who writes roles must have the
// permissions that the roles grant, or be allowed to escalate or bind.
func (a *Authorizer) RulesOf(
	ctx context.Context, u user.Info, namespace string,
) ([]rbacv1.PolicyRule, error) {
	return a.roles.RulesOf(ctx, u, namespace)
}

// RoleRules returns the rules of the role that a binding in the namespace refers to.
func (a *Authorizer) RoleRules(
	ctx context.Context, ref rbacv1.RoleRef, namespace string,
) ([]rbacv1.PolicyRule, error) {
	return a.roles.RoleRules(ctx, ref, namespace)
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (a *Authorizer) Authorize(
	ctx context.Context, attributes authorizer.Attributes,
) (authorizer.Decision, string, error) {
	return a.current.Load().Authorize(ctx, attributes)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (a *Authorizer) ConditionsAwareAuthorize(
	ctx context.Context, attributes authorizer.Attributes,
) authorizer.ConditionsAwareDecision {
	return a.current.Load().ConditionsAwareAuthorize(ctx, attributes)
}

// EvaluateConditions implements authorizer.Authorizer.
func (a *Authorizer) EvaluateConditions(
	ctx context.Context, decision authorizer.ConditionsAwareDecision, data authorizer.ConditionsData,
) (authorizer.Decision, string, error) {
	return a.current.Load().EvaluateConditions(ctx, decision, data)
}

// RulesFor implements authorizer.RuleResolver.
func (a *Authorizer) RulesFor(
	ctx context.Context, u user.Info, namespace string,
) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return a.current.Load().RulesFor(ctx, u, namespace)
}

// New returns an authorizer. Members of system:masters may do everything in every mode.
func (a Authorization) New() (*Authorizer, error) {
	if a.Roles == nil {
		return nil, errors.New("authorization requires a source of roles")
	}
	config := a.Config
	if config == nil {
		config = &apiserver.AuthorizationConfiguration{}
		modes := a.Modes
		if len(modes) == 0 {
			modes = []string{ModeNode, ModeRBAC}
		}
		for i, mode := range modes {
			if slices.Contains(modes[:i], mode) {
				return nil, fmt.Errorf("authorization mode %s is listed twice", mode)
			}
			config.Authorizers = append(config.Authorizers, apiserver.AuthorizerConfiguration{
				Type: apiserver.AuthorizerType(mode),
				Name: mode,
			})
		}
	}
	made := &Authorizer{roles: rbacauthorizer.New(a.Roles), links: map[string]link{}}
	for _, c := range config.Authorizers {
		switch c.Type {
		case ModeRBAC:
			made.links[ModeRBAC] = made.roles
		case ModeNode:
			made.links[ModeNode] = nodeauthorizer.New(a.Client)
		}
	}
	return made, made.use(config)
}

// use makes the authorizer ask the links of a configuration.
func (a *Authorizer) use(config *apiserver.AuthorizationConfiguration) error {
	all := []union.NamedAuthorizer{
		{
			AuthorizerName: "masters",
			Authorizer:     authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup),
		},
	}
	var resolvers []authorizer.RuleResolver
	for _, c := range config.Authorizers {
		made, err := a.link(&c)
		if err != nil {
			return err
		}
		all = append(all, union.NamedAuthorizer{AuthorizerName: c.Name, Authorizer: made})
		resolvers = append(resolvers, made)
	}
	united, err := union.New(all...)
	if err != nil {
		return err
	}
	a.current.Store(&chain{united, union.NewRuleResolvers(resolvers...)})
	return nil
}

func (a *Authorizer) link(c *apiserver.AuthorizerConfiguration) (link, error) {
	switch c.Type {
	case ModeRBAC, ModeNode:
		if l := a.links[string(c.Type)]; l != nil {
			return l, nil
		}
		return nil, fmt.Errorf("the authorizer %s was not there from the start", c.Type)
	case ModeAlwaysAllow:
		return authorizerfactory.NewAlwaysAllowAuthorizer(), nil
	case ModeAlwaysDeny:
		return authorizerfactory.NewAlwaysDenyAuthorizer(), nil
	case ModeWebhook:
		return newWebhook(c)
	}
	return nil, fmt.Errorf("unknown authorization mode %q: use one or more of %s", c.Type,
		strings.Join(Modes(), ", "))
}

// newWebhook returns an authorizer that asks a webhook, with SubjectAccessReviews.
func newWebhook(c *apiserver.AuthorizerConfiguration) (link, error) {
	hook := c.Webhook
	if hook == nil || hook.ConnectionInfo.KubeConfigFile == nil {
		return nil, fmt.Errorf("the webhook %s has no kubeconfig", c.Name)
	}
	config, err := utilwebhook.LoadKubeconfig(*hook.ConnectionInfo.KubeConfigFile, nil)
	if err != nil {
		return nil, err
	}
	if hook.Timeout.Duration != 0 {
		config.Timeout = hook.Timeout.Duration
	}
	failed := authorizer.DecisionNoOpinion
	if hook.FailurePolicy == apiserver.FailurePolicyDeny {
		failed = authorizer.DecisionDeny
	}
	var allowed, refused time.Duration // how long answers are kept
	if hook.CacheAuthorizedRequests {
		allowed = hook.AuthorizedTTL.Duration
	}
	if hook.CacheUnauthorizedRequests {
		refused = hook.UnauthorizedTTL.Duration
	}
	return webhook.New(config, hook.SubjectAccessReviewVersion, allowed, refused,
		*options.DefaultAuthWebhookRetryBackoff(), failed, hook.MatchConditions, c.Name,
		webhookMetrics{
			WebhookMetrics: metrics.NewWebhookMetrics(),
			MatcherMetrics: authorizationcel.NewMatcherMetrics(),
		}, authorizationcel.NewDefaultCompiler())
}

// webhookMetrics are the metrics that kube-apiserver has of webhooks.
type webhookMetrics struct {
	metrics.NoopRequestMetrics
	metrics.WebhookMetrics
	authorizationcel.MatcherMetrics
}

// DecodeAuthorization decodes an AuthorizationConfiguration.
func DecodeAuthorization(data []byte) (*apiserver.AuthorizationConfiguration, error) {
	config, err := load.LoadFromData(data)
	if err != nil {
		return nil, err
	}
	errs := validation.ValidateAuthorizationConfiguration(authorizationcel.NewDefaultCompiler(), nil,
		config, sets.New(Modes()...), sets.New(ModeWebhook))
	for i, c := range config.Authorizers {
		if want := strings.ToLower(string(c.Type)); c.Type != ModeWebhook && c.Name != want {
			errs = append(errs, field.Invalid(field.NewPath("authorizers").Index(i).Child("name"), c.Name,
				"must be "+want))
		}
	}
	return config, errs.ToAggregate()
}

// Replace replaces the configuration. All authorizers but webhooks must stay, in any order.
func (a *Authorizer) Replace(config *apiserver.AuthorizationConfiguration) error {
	for mode := range a.links {
		if !slices.ContainsFunc(config.Authorizers, func(c apiserver.AuthorizerConfiguration) bool {
			return string(c.Type) == mode
		}) {
			return fmt.Errorf("the authorizer %s must stay", mode)
		}
	}
	return a.use(config)
}
