package rbacauthorizer

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Authorizer allows a request if a rule of a role that is bound to the user allows it. Cluster role
// bindings apply to the whole cluster, and role bindings to their namespace. Authorizer never
// denies a request.
type Authorizer struct {
	source Source
}

var (
	_ authorizer.Authorizer   = &Authorizer{}
	_ authorizer.RuleResolver = &Authorizer{}
)

// New returns an authorizer that reads roles and bindings from source for every request.
func New(source Source) *Authorizer { return &Authorizer{source: source} }

// Authorize implements [authorizer.Authorizer]. If no rule allows the request, the reason names the
// roles that could not be found.
func (a *Authorizer) Authorize(
	ctx context.Context, attributes authorizer.Attributes,
) (authorizer.Decision, string, error) {
	request := requestOf(attributes)
	var reason string
	errs := a.visit(ctx, attributes.GetUser(), attributes.GetNamespace(),
		func(g grant, rules []rbacv1.PolicyRule) bool {
			for i := range rules {
				if request.allowedBy(&rules[i]) {
					reason = g.String()
					return false
				}
			}
			return true
		})
	switch {
	case reason != "":
		return authorizer.DecisionAllow, reason, nil
	case len(errs) > 0:
		return authorizer.DecisionNoOpinion,
			fmt.Sprintf("some roles could not be resolved: %v", utilerrors.NewAggregate(errs)), nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// ConditionsAwareAuthorize implements [authorizer.Authorizer]. Roles have no conditions.
func (a *Authorizer) ConditionsAwareAuthorize(
	ctx context.Context, attributes authorizer.Attributes,
) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, attributes))
}

// EvaluateConditions implements [authorizer.Authorizer]. Roles have no conditions.
func (a *Authorizer) EvaluateConditions(
	context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData,
) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// RulesFor implements [authorizer.RuleResolver]. The list is incomplete if a role could not be
// found.
func (a *Authorizer) RulesFor(
	ctx context.Context, u user.Info, namespace string,
) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	rules, err := a.RulesOf(ctx, u, namespace)
	var resources []authorizer.ResourceRuleInfo
	var urls []authorizer.NonResourceRuleInfo
	for _, rule := range rules {
		if len(rule.Resources) > 0 {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{
				Verbs:         rule.Verbs,
				APIGroups:     rule.APIGroups,
				Resources:     rule.Resources,
				ResourceNames: rule.ResourceNames,
			})
		}
		if len(rule.NonResourceURLs) > 0 {
			urls = append(urls, &authorizer.DefaultNonResourceRuleInfo{
				Verbs:           rule.Verbs,
				NonResourceURLs: rule.NonResourceURLs,
			})
		}
	}
	return resources, urls, err != nil, err
}

// RulesOf returns the rules that apply to a user in a namespace, or in the whole cluster if the
// namespace is empty. If it returns an error, it also returns the rules that could be found.
func (a *Authorizer) RulesOf(
	ctx context.Context, u user.Info, namespace string,
) ([]rbacv1.PolicyRule, error) {
	var all []rbacv1.PolicyRule
	errs := a.visit(ctx, u, namespace, func(_ grant, rules []rbacv1.PolicyRule) bool {
		all = append(all, rules...)
		return true
	})
	return all, utilerrors.NewAggregate(errs)
}

// RoleRules returns the rules of the role that a binding in the namespace refers to. For a cluster
// role binding, the namespace is empty.
func (a *Authorizer) RoleRules(
	ctx context.Context, ref rbacv1.RoleRef, namespace string,
) ([]rbacv1.PolicyRule, error) {
	switch ref.Kind {
	case "ClusterRole":
		role, err := a.source.ClusterRole(ctx, ref.Name)
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	case "Role":
		role, err := a.source.Role(ctx, namespace, ref.Name)
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	}
	return nil, fmt.Errorf("unsupported kind of role %q in a binding", ref.Kind)
}

// grant describes the binding that grants rules to a user.
type grant struct {
	kind, namespace, name string
	ref                   rbacv1.RoleRef
	subject               *rbacv1.Subject
}

func (g grant) String() string {
	name := g.name
	if g.namespace != "" {
		name = g.namespace + "/" + name
	}
	return fmt.Sprintf("%s %q grants %s %q to %s", g.kind, name, g.ref.Kind, g.ref.Name,
		describeSubject(g.subject))
}

func describeSubject(s *rbacv1.Subject) string {
	if s.Kind == rbacv1.ServiceAccountKind {
		return fmt.Sprintf("%s %q", s.Kind, s.Namespace+"/"+s.Name)
	}
	return fmt.Sprintf("%s %q", s.Kind, s.Name)
}

// visit calls f with the rules of each of the user's bindings until f returns false. It collects
// errors and continues, because another binding may allow the request.
func (a *Authorizer) visit(
	ctx context.Context, u user.Info, namespace string, f func(grant, []rbacv1.PolicyRule) bool,
) []error {
	if u == nil {
		return nil
	}
	var errs []error
	clusterBindings, err := a.source.ClusterRoleBindings(ctx)
	if err != nil {
		errs = append(errs, err)
	}
	for _, b := range clusterBindings {
		subject := boundSubject(u, b.Subjects, "")
		if subject == nil {
			continue
		}
		rules, err := a.RoleRules(ctx, b.RoleRef, "")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !f(grant{kind: "ClusterRoleBinding", name: b.Name, ref: b.RoleRef, subject: subject}, rules) {
			return errs
		}
	}
	if namespace == "" {
		return errs
	}
	bindings, err := a.source.RoleBindings(ctx, namespace)
	if err != nil {
		errs = append(errs, err)
	}
	for _, b := range bindings {
		subject := boundSubject(u, b.Subjects, namespace)
		if subject == nil {
			continue
		}
		rules, err := a.RoleRules(ctx, b.RoleRef, namespace)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !f(grant{
			kind:      "RoleBinding",
			namespace: namespace,
			name:      b.Name,
			ref:       b.RoleRef,
			subject:   subject,
		}, rules) {
			return errs
		}
	}
	return errs
}

// boundSubject returns the first subject of a binding that matches the user, or nil. A service
// account without a namespace is in the binding's namespace.
func boundSubject(u user.Info, subjects []rbacv1.Subject, namespace string) *rbacv1.Subject {
	for i := range subjects {
		s := &subjects[i]
		switch s.Kind {
		case rbacv1.UserKind:
			if s.Name == u.GetName() {
				return s
			}
		case rbacv1.GroupKind:
			if slices.Contains(u.GetGroups(), s.Name) {
				return s
			}
		case rbacv1.ServiceAccountKind:
			of := s.Namespace
			if of == "" {
				of = namespace
			}
			if of != "" && serviceaccount.MatchesUsername(of, s.Name, u.GetName()) {
				return s
			}
		}
	}
	return nil
}
