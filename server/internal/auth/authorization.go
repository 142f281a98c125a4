package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/pkg/authorization/union"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	webhookmetrics "k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
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

const (
	// DefaultAllowTTL is for how long a webhook's yes is believed.
	DefaultAllowTTL = 5 * time.Minute
	// DefaultDenyTTL is for how long a webhook's no is believed.
	DefaultDenyTTL = 30 * time.Second
)

// Authorization says who decides what a user may do.
type Authorization struct {
	// Modes are asked in this order until one allows or denies; the default is [ModeNode], [ModeRBAC].
	Modes []string
	// Roles is where [ModeRBAC] reads roles and bindings.
	Roles rbacauthorizer.Source
	// Client reads for [ModeNode] what belongs to a node.
	Client kubernetes.Interface
	// WebhookConfigFile is a kubeconfig of the service that [ModeWebhook] asks (authorization.k8s.io/v1 SubjectAccessReview).
	WebhookConfigFile string
	// AllowTTL and DenyTTL are for how long the service's answers are believed; they default to [DefaultAllowTTL] and [DefaultDenyTTL].
	AllowTTL, DenyTTL time.Duration
}

// Authorizer decides, and lists the rules that it knows to hold for a user.
type Authorizer struct {
	authorizer.Authorizer
	authorizer.RuleResolver
	roles *rbacauthorizer.Authorizer
}

// RulesOf are the rules that roles give a user in a namespace, or everywhere if it is empty, whatever the modes are: who writes roles must
// hold what they grant, or be allowed to escalate or bind.
func (a *Authorizer) RulesOf(ctx context.Context, u user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	return a.roles.RulesOf(ctx, u, namespace)
}

// RoleRules are the rules of the role to which a binding in the namespace refers.
func (a *Authorizer) RoleRules(ctx context.Context, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	return a.roles.RoleRules(ctx, ref, namespace)
}

// New makes an authorizer. Members of system:masters may do everything, whatever the modes.
func (a Authorization) New() (*Authorizer, error) {
	modes := a.Modes
	if len(modes) == 0 {
		modes = []string{ModeNode, ModeRBAC}
	}
	if a.Roles == nil {
		return nil, errors.New("authorization needs a source of roles")
	}
	roles := rbacauthorizer.New(a.Roles)
	chain := []union.NamedAuthorizer{
		{AuthorizerName: "masters", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
	}
	var resolvers []authorizer.RuleResolver
	for i, mode := range modes {
		if slices.Contains(modes[:i], mode) {
			return nil, fmt.Errorf("authorization mode %s is given twice", mode)
		}
		link, err := a.link(mode, roles)
		if err != nil {
			return nil, err
		}
		chain = append(chain, union.NamedAuthorizer{AuthorizerName: mode, Authorizer: link})
		if resolver, ok := link.(authorizer.RuleResolver); ok {
			resolvers = append(resolvers, resolver)
		}
	}
	all, err := union.New(chain...)
	if err != nil {
		return nil, err
	}
	return &Authorizer{Authorizer: all, RuleResolver: union.NewRuleResolvers(resolvers...), roles: roles}, nil
}

func (a Authorization) link(mode string, roles *rbacauthorizer.Authorizer) (authorizer.Authorizer, error) {
	switch mode {
	case ModeRBAC:
		return roles, nil
	case ModeNode:
		return nodeauthorizer.New(a.Client), nil
	case ModeAlwaysAllow:
		return authorizerfactory.NewAlwaysAllowAuthorizer(), nil
	case ModeAlwaysDeny:
		return authorizerfactory.NewAlwaysDenyAuthorizer(), nil
	case ModeWebhook:
		return a.webhook()
	}
	known := []string{ModeRBAC, ModeNode, ModeAlwaysAllow, ModeAlwaysDeny, ModeWebhook}
	return nil, fmt.Errorf("authorization mode %q is not known: use some of %s", mode, strings.Join(known, ", "))
}

func (a Authorization) webhook() (authorizer.Authorizer, error) {
	if a.WebhookConfigFile == "" {
		return nil, errors.New("authorization mode Webhook needs the kubeconfig of the webhook")
	}
	config, err := webhookutil.LoadKubeconfig(a.WebhookConfigFile, nil)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of the authorization webhook: %w", err)
	}
	allow, deny := a.AllowTTL, a.DenyTTL
	if allow == 0 {
		allow = DefaultAllowTTL
	}
	if deny == 0 {
		deny = DefaultDenyTTL
	}
	hook, err := webhook.New(config, "v1", allow, deny, webhookutil.DefaultRetryBackoffWithInitialDelay(webhookDelay),
		authorizer.DecisionNoOpinion, nil, "authorization-webhook", webhookmetrics.NoopAuthorizerMetrics{}, authorizationcel.NewDefaultCompiler())
	if err != nil {
		return nil, fmt.Errorf("set up the authorization webhook: %w", err)
	}
	return hook, nil
}
