package servertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/internal/install"
)

// Account describes a user and what the user may do. See [User].
type Account struct {
	// Name is the name of the user, and Groups those that the user is in, besides
	// system:authenticated.
	Name   string
	Groups []string

	// Namespace is where Rules and ClusterRole apply. If it is empty, they apply in all namespaces
	// and to what is in none.
	Namespace string
	// Rules are permissions of the user.
	Rules []rbacv1.PolicyRule
	// ClusterRole is the name of a role that the user has too, such as view.
	ClusterRole string
}

// As returns a copy of a client configuration for a controller that runs in the test's process. Its
// requests have the name as their user agent, so that they can be told from those of the test: in
// what a failed test prints, in the rules of faults, and in a history. The name must be one word.
//
//	manager, err := ctrl.NewManager(servertest.As(s.RESTConfig(), "operator"), ctrl.Options{})
func As(config *rest.Config, name string) *rest.Config {
	config = rest.CopyConfig(config)
	config.UserAgent = name
	return config
}

// User returns a client configuration for a user, after it has given the user the permissions and
// they have taken effect:
//
//	viewer := servertest.User(t, s, servertest.Account{Name: "jane", ClusterRole: "view"})
//	client := kubernetes.NewForConfigOrDie(viewer)
//
// The user may also do what RBAC allows otherwise, for example what an earlier call has granted.
// The roles and bindings that User creates are deleted when the test ends.
func User(t TB, c API, account Account) *rest.Config {
	t.Helper()
	var config *rest.Config
	do(t, c, "user "+account.Name, func(ctx context.Context, k *clients) error {
		if account.Name == "" {
			return errors.New("the name is empty")
		}
		rules := slices.Clone(account.Rules)
		if len(account.Rules) > 0 {
			role, err := k.createRole(ctx, t, account)
			if err != nil {
				return fmt.Errorf("role: %w", err)
			}
			if err := k.bind(ctx, t, account, role); err != nil {
				return fmt.Errorf("binding: %w", err)
			}
		}
		if account.ClusterRole != "" {
			present, err := k.rulesOf(ctx, account.ClusterRole)
			if err != nil {
				return fmt.Errorf("cluster role %s: %w", account.ClusterRole, err)
			}
			rules = append(rules, present...)
			role := rbacv1.RoleRef{Kind: "ClusterRole", Name: account.ClusterRole}
			if err := k.bind(ctx, t, account, role); err != nil {
				return fmt.Errorf("binding of %s: %w", account.ClusterRole, err)
			}
		}
		for _, rule := range rules {
			if err := k.awaitAllowed(ctx, account, rule); err != nil {
				return err
			}
		}
		var err error
		config, err = configOf(c, account)
		return err
	})
	return config
}

// configOf returns a client configuration for a user: with a certificate if the cluster can issue
// one, and otherwise one that impersonates.
func configOf(c API, account Account) (*rest.Config, error) {
	if issuer, ok := c.(interface {
		User(name string, groups ...string) (*rest.Config, error)
	}); ok {
		return issuer.User(account.Name, account.Groups...)
	}
	config := c.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: account.Name, Groups: account.Groups}
	return config, nil
}

// createRole creates a role with the account's rules.
func (k *clients) createRole(ctx context.Context, t TB, a Account) (rbacv1.RoleRef, error) {
	made, err := k.grant(ctx, t, a, &rbacv1.Role{Rules: a.Rules})
	if err != nil {
		return rbacv1.RoleRef{}, err
	}
	return rbacv1.RoleRef{Kind: made.GetKind(), Name: made.GetName()}, nil
}

// bind gives a role to the account's user.
func (k *clients) bind(ctx context.Context, t TB, a Account, role rbacv1.RoleRef) error {
	role.APIGroup = rbacv1.GroupName
	_, err := k.grant(ctx, t, a, &rbacv1.RoleBinding{
		RoleRef: role,
		Subjects: []rbacv1.Subject{{
			APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: a.Name,
		}},
	})
	return err
}

// grant creates a Role or a RoleBinding in the account's namespace. If that is empty, it creates
// the ClusterRole or ClusterRoleBinding with the same fields.
func (k *clients) grant(
	ctx context.Context, t TB, a Account, object runtime.Object,
) (*unstructured.Unstructured, error) {
	u, err := fromObject(object)
	if err != nil {
		return nil, err
	}
	u.SetGenerateName("servertest-")
	if a.Namespace == "" {
		u.SetKind("Cluster" + u.GetKind())
	}
	plural := strings.ToLower(u.GetKind()) + "s"
	resources := k.Dynamic.Resource(rbacv1.SchemeGroupVersion.WithResource(plural))
	var resource dynamic.ResourceInterface = resources
	if a.Namespace != "" {
		resource = resources.Namespace(a.Namespace)
	}
	made, err := k.CreateIn(ctx, resource, u)
	if err != nil {
		return nil, err
	}
	deleteAtEnd(t, made)
	return made.Unstructured, nil
}

// aggregationTimeout limits the wait for the rules of a role that consists of others. Without the
// control loop for them, it never has any.
const aggregationTimeout = 10 * time.Second

// rulesOf returns the rules of a cluster role.
func (k *clients) rulesOf(ctx context.Context, name string) ([]rbacv1.PolicyRule, error) {
	ctx, cancel := context.WithTimeout(ctx, aggregationTimeout)
	defer cancel()
	var rules []rbacv1.PolicyRule
	err := install.Until(ctx, func(ctx context.Context) error {
		role, err := k.typed.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return install.Fatal(err)
		}
		if role.AggregationRule != nil && len(role.Rules) == 0 {
			return errors.New("it has no rules: does a control loop aggregate them?")
		}
		rules = role.Rules
		return nil
	})
	return rules, err
}

// awaitAllowed waits until a rule has taken effect for the account's user. Authorizers learn of
// roles and bindings by a watch.
func (k *clients) awaitAllowed(ctx context.Context, a Account, rule rbacv1.PolicyRule) error {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: a.Name, Groups: slices.Concat(a.Groups, []string{"system:authenticated"}),
	}}
	switch {
	case len(rule.Verbs) == 0:
		return nil
	case len(rule.NonResourceURLs) > 0:
		if a.Namespace != "" {
			return nil // such rules have no effect in a namespace
		}
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{
			Verb: rule.Verbs[0], Path: rule.NonResourceURLs[0],
		}
	case len(rule.APIGroups) == 0 || len(rule.Resources) == 0:
		return nil
	default:
		resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Namespace: a.Namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0],
			Resource: resource, Subresource: subresource,
		}
		if len(rule.ResourceNames) > 0 {
			review.Spec.ResourceAttributes.Name = rule.ResourceNames[0]
		}
	}
	return install.Until(ctx, func(ctx context.Context) error {
		reviews := k.typed.AuthorizationV1().SubjectAccessReviews()
		answer, err := reviews.Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if !answer.Status.Allowed {
			return fmt.Errorf("the rule %s has not taken effect: does the API server use RBAC?",
				&rule)
		}
		return nil
	})
}
