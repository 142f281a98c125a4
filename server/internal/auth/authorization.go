package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/union"
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
)

// Authorization configures the authorizers.
type Authorization struct {
	// Modes are the authorization modes. They are asked in this order until one allows or denies
	// the request. The default is [ModeNode], [ModeRBAC].
	Modes []string
	// Roles is the source of the roles and bindings for [ModeRBAC].
	Roles rbacauthorizer.Source
	// Client reads the objects that are related to a node for [ModeNode].
	Client kubernetes.Interface
}

// Authorizer authorizes requests and lists the rules that it knows for a user.
type Authorizer struct {
	authorizer.Authorizer
	authorizer.RuleResolver
	roles *rbacauthorizer.Authorizer
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

// New returns an authorizer. Members of system:masters may do everything in every mode.
func (a Authorization) New() (*Authorizer, error) {
	modes := a.Modes
	if len(modes) == 0 {
		modes = []string{ModeNode, ModeRBAC}
	}
	if a.Roles == nil {
		return nil, errors.New("authorization requires a source of roles")
	}
	roles := rbacauthorizer.New(a.Roles)
	chain := []union.NamedAuthorizer{
		{
			AuthorizerName: "masters",
			Authorizer:     authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup),
		},
	}
	var resolvers []authorizer.RuleResolver
	for i, mode := range modes {
		if slices.Contains(modes[:i], mode) {
			return nil, fmt.Errorf("authorization mode %s is listed twice", mode)
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
	return &Authorizer{
		Authorizer:   all,
		RuleResolver: union.NewRuleResolvers(resolvers...),
		roles:        roles,
	}, nil
}

func (a Authorization) link(
	mode string, roles *rbacauthorizer.Authorizer,
) (authorizer.Authorizer, error) {
	switch mode {
	case ModeRBAC:
		return roles, nil
	case ModeNode:
		return nodeauthorizer.New(a.Client), nil
	case ModeAlwaysAllow:
		return authorizerfactory.NewAlwaysAllowAuthorizer(), nil
	case ModeAlwaysDeny:
		return authorizerfactory.NewAlwaysDenyAuthorizer(), nil
	}
	known := []string{ModeRBAC, ModeNode, ModeAlwaysAllow, ModeAlwaysDeny}
	return nil, fmt.Errorf("unknown authorization mode %q: use one or more of %s",
		mode, strings.Join(known, ", "))
}
