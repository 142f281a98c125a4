package rbac

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

// Policy answers which permissions users hold, so that nobody can grant more than they hold.
type Policy interface {
	// Authorize decides whether a user may escalate or bind.
	authorizer.UnconditionalAuthorizer
	// RulesOf returns the rules that apply to a user in a namespace, or cluster-wide if the
	// namespace is empty. If it returns an error, the rules are those that could be resolved.
	RulesOf(ctx context.Context, u user.Info, namespace string) ([]rbacv1.PolicyRule, error)
	// RoleRules returns the rules of the role that a binding in the namespace refers to.
	RoleRules(ctx context.Context, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error)
}

// A check decides whether the user in ctx may write obj. It returns an API status error, or an
// error that becomes the reason of a 403. old is nil or empty for a new object.
type check func(ctx context.Context, p Policy, obj, old runtime.Object) error

// guard runs the check before creates and updates.
func guard(s *kind.Storage, p Policy, c check) rest.Storage {
	if p == nil {
		return s
	}
	return &guarded{Storage: s, policy: p, check: c}
}

type guarded struct {
	*kind.Storage
	policy Policy
	check  check
}

func (g *guarded) Create(
	ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc,
	options *metav1.CreateOptions,
) (runtime.Object, error) {
	if err := g.refuse(ctx, obj, nil); err != nil {
		return nil, err
	}
	return g.Storage.Create(ctx, obj, validate, options)
}

func (g *guarded) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc,
	forceAllowCreate bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	checked := rest.WrapUpdatedObjectInfo(info,
		func(ctx context.Context, obj, old runtime.Object) (runtime.Object, error) {
			// The garbage collector removes finalizers and owner references from objects whose
			// rules it does not hold.
			if collects(obj, old) {
				return obj, nil
			}
			return obj, g.refuse(ctx, obj, old)
		})
	return g.Storage.Update(ctx, name, checked, createValidation, updateValidation,
		forceAllowCreate, options)
}

func (g *guarded) refuse(ctx context.Context, obj, old runtime.Object) error {
	u, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return apierrors.NewForbidden(g.DefaultQualifiedResource, "",
			errors.New("the request has no user"))
	}
	if slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	err = g.check(ctx, g.policy, obj, old)
	if status := apierrors.APIStatus(nil); err == nil || errors.As(err, &status) {
		return err
	}
	return apierrors.NewForbidden(g.DefaultQualifiedResource, accessor.GetName(), err)
}

// collects reports whether an update changes finalizers or owner references and nothing else.
func collects(obj, old runtime.Object) bool {
	if obj == nil || old == nil {
		return false
	}
	obj, old = obj.DeepCopyObject(), old.DeepCopyObject()
	objMeta, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	oldMeta, err := meta.Accessor(old)
	if err != nil {
		return false
	}
	objMeta.SetOwnerReferences(oldMeta.GetOwnerReferences())
	objMeta.SetFinalizers(oldMeta.GetFinalizers())
	objMeta.SetSelfLink(oldMeta.GetSelfLink())
	objMeta.SetManagedFields(oldMeta.GetManagedFields())
	return equality.Semantic.DeepEqual(obj, old)
}

// mayGrantRole returns an error unless the user may escalate the role or holds all of its rules.
func mayGrantRole(ctx context.Context, p Policy, rules []rbacv1.PolicyRule) error {
	if info, ok := genericapirequest.RequestInfoFrom(ctx); ok && info.IsResourceRequest &&
		mayDo(ctx, p, authorizer.AttributesRecord{
			Verb:       "escalate",
			APIGroup:   info.APIGroup,
			APIVersion: info.APIVersion,
			Resource:   info.Resource,
			Name:       info.Name,
			Namespace:  info.Namespace,
		}) {
		return nil
	}
	return holds(ctx, p, rules)
}

// mayBind returns an error unless the user may bind the role or holds all of its rules.
func mayBind(ctx context.Context, p Policy, ref rbacv1.RoleRef) error {
	namespace := genericapirequest.NamespaceValue(ctx)
	resource := ""
	switch ref.Kind {
	case roleKind:
		resource = "roles"
	case clusterRoleKind:
		resource = "clusterroles"
	}
	if resource != "" && mayDo(ctx, p, authorizer.AttributesRecord{
		Verb:       "bind",
		APIGroup:   ref.APIGroup,
		APIVersion: "*",
		Resource:   resource,
		Name:       ref.Name,
		Namespace:  namespace,
	}) {
		return nil
	}
	if ref.Kind == roleKind && namespace == "" {
		return apierrors.NewBadRequest("a cluster role binding cannot refer to a Role, " +
			"which is in a namespace")
	}
	rules, err := p.RoleRules(ctx, ref, namespace)
	if apierrors.IsNotFound(err) {
		// As in kube-apiserver, the error names the resource of the request.
		resource := "rolebindings"
		if namespace == "" {
			resource = "clusterrolebindings"
		}
		return apierrors.NewNotFound(rbacv1.Resource(resource), ref.Name)
	}
	if err != nil {
		return err
	}
	return holds(ctx, p, rules)
}

// mayDo reports whether the authorizer allows a. An authorizer's error counts as a denial because
// the user may still hold the rules.
func mayDo(ctx context.Context, p Policy, a authorizer.AttributesRecord) bool {
	u, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return false
	}
	a.User, a.ResourceRequest = u, true
	decision, _, err := p.Authorize(ctx, a)
	return err == nil && decision == authorizer.DecisionAllow
}

// mostListed is how many missing rules an error lists.
const mostListed = 1000

// holds returns an error that lists the rules that the request's user does not hold, or nil.
func holds(ctx context.Context, p Policy, rules []rbacv1.PolicyRule) error {
	u, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return errors.New("the request has no user")
	}
	held, err := p.RulesOf(ctx, u, genericapirequest.NamespaceValue(ctx))
	lacking, many := missing(held, rules)
	if len(lacking) == 0 && many == nil {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "user %q (groups=%q) would grant permissions that they do not hold:",
		u.GetName(), u.GetGroups())
	compacted := compact(lacking)
	for _, rule := range compacted[:min(len(compacted), mostListed)] {
		b.WriteString("\n" + describe(rule))
	}
	if many != nil || len(compacted) > mostListed {
		fmt.Fprintf(&b, "\n%v", cmp.Or(many, errMissing))
	}
	if err != nil {
		fmt.Fprintf(&b, "\n(some of their roles could not be resolved: %v)", err)
	}
	return errors.New(b.String())
}

// compact merges rules that differ only in their verbs.
func compact(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	at := map[string]int{}
	for _, rule := range rules {
		verbs := rule.Verbs
		rule.Verbs = nil
		key := describe(rule)
		i, seen := at[key]
		if !seen {
			i = len(out)
			at[key] = i
			out = append(out, rule)
		}
		out[i].Verbs = append(slices.Clip(out[i].Verbs), verbs...)
	}
	return out
}

func describe(r rbacv1.PolicyRule) string {
	var parts []string
	for _, part := range []struct {
		name   string
		values []string
	}{
		{"apiGroups", r.APIGroups}, {"resources", r.Resources}, {"resourceNames", r.ResourceNames},
		{"nonResourceURLs", r.NonResourceURLs}, {"verbs", r.Verbs},
	} {
		if len(part.values) > 0 {
			parts = append(parts, fmt.Sprintf("%s=%q", part.name, part.values))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
