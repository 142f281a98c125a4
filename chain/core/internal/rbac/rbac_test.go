package rbac

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func TestValidation(t *testing.T) {
	t.Parallel()
	rule := func(change func(*rbacv1.PolicyRule)) []rbacv1.PolicyRule {
		r := rbacv1.PolicyRule{
			Verbs:     []string{"get"},
			APIGroups: []string{""},
			Resources: []string{"pods"},
		}
		change(&r)
		return []rbacv1.PolicyRule{r}
	}
	binding := func(namespaced bool, change func(*rbacv1.Subject, *rbacv1.RoleRef)) field.ErrorList {
		subjects := []rbacv1.Subject{{Kind: "User", Name: "bob"}}
		ref := rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}
		change(&subjects[0], &ref)
		defaultBinding(subjects, &ref)
		return validateBinding(subjects, ref, namespaced)
	}
	roles := ClusterRoles(nil)
	aggregating := func(selectors ...metav1.LabelSelector) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{
			AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: selectors},
		}
	}
	odd := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "a", Operator: "In", Values: []string{"not a value"}},
	}}
	const selector = "aggregationRule.clusterRoleSelectors[0]"
	aggregate := func(selectors ...metav1.LabelSelector) field.ErrorList {
		return roles.Validate(t.Context(), aggregating(selectors...))
	}
	for name, test := range map[string]struct {
		got  field.ErrorList
		want string
	}{
		"role": {validateRules(rule(func(*rbacv1.PolicyRule) {}), true), ""},
		"no groups": {validateRules(rule(func(r *rbacv1.PolicyRule) {
			r.APIGroups = nil
		}), true), "rules[0].apiGroups Required"},
		"no resources": {validateRules(rule(func(r *rbacv1.PolicyRule) {
			r.Resources = nil
		}), true), "rules[0].resources Required"},
		"no verbs": {validateRules(rule(func(r *rbacv1.PolicyRule) {
			r.Verbs = nil
		}), false), "rules[0].verbs Required"},
		"urls": {validateRules([]rbacv1.PolicyRule{{
			Verbs:           []string{"get"},
			NonResourceURLs: []string{"/x"},
		}}, false), ""},
		"namespaced urls": {validateRules([]rbacv1.PolicyRule{{
			Verbs:           []string{"get"},
			NonResourceURLs: []string{"/x"},
		}}, true), "rules[0].nonResourceURLs Invalid"},
		"names and urls": {
			validateRules([]rbacv1.PolicyRule{
				{Verbs: []string{"get"}, NonResourceURLs: []string{"/x"}, ResourceNames: []string{"x"}},
			}, false),
			"rules[0].nonResourceURLs Invalid",
		},
		"aggregation of nothing": {aggregate(), "aggregationRule.clusterRoleSelectors Required"},
		"aggregation":            {aggregate(metav1.LabelSelector{}), ""},
		"odd aggregation": {
			aggregate(odd), selector + " Invalid, " + selector + ".matchExpressions[0].values[0] Invalid",
		},
		"odd aggregation before": {
			roles.ValidateUpdate(t.Context(), aggregating(odd), aggregating(odd)), selector + " Invalid",
		},
		"binding": {binding(false, func(*rbacv1.Subject, *rbacv1.RoleRef) {}), ""},
		"cluster binding of role": {
			binding(false, func(_ *rbacv1.Subject, r *rbacv1.RoleRef) { r.Kind = "Role" }),
			"roleRef.kind NotSupported",
		},
		"binding of role": {
			binding(true, func(_ *rbacv1.Subject, r *rbacv1.RoleRef) { r.Kind = "Role" }), "",
		},
		"role's group": {binding(true, func(_ *rbacv1.Subject, r *rbacv1.RoleRef) {
			r.APIGroup = "x"
		}), "roleRef.apiGroup NotSupported"},
		"role's name": {binding(true, func(_ *rbacv1.Subject, r *rbacv1.RoleRef) {
			r.Name = "a/b"
		}), "roleRef.name Invalid"},
		"subject's group": {binding(true, func(s *rbacv1.Subject, _ *rbacv1.RoleRef) {
			s.APIGroup = "x"
		}), "subjects[0].apiGroup NotSupported"},
		"account": {
			binding(true, func(s *rbacv1.Subject, _ *rbacv1.RoleRef) { s.Kind = "ServiceAccount" }), "",
		},
		"account's name": {binding(true, func(s *rbacv1.Subject, _ *rbacv1.RoleRef) {
			s.Kind, s.Name = "ServiceAccount", "A"
		}), "subjects[0].name Invalid"},
		"account anywhere": {binding(false, func(s *rbacv1.Subject, _ *rbacv1.RoleRef) {
			s.Kind = "ServiceAccount"
		}), "subjects[0].namespace Required"},
		"account's group": {
			binding(true, func(s *rbacv1.Subject, _ *rbacv1.RoleRef) {
				s.Kind, s.APIGroup = "ServiceAccount", "x"
			}),
			"subjects[0].apiGroup NotSupported",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := kindtest.Causes(test.got)
			if s := strings.Join(got, ", "); s != test.want {
				t.Errorf("got %q, want %q", s, test.want)
			}
		})
	}
}

// policy is what a single user holds, and what they may do.
type policy struct {
	rules []rbacv1.PolicyRule
	may   string
}

func (p policy) Authorize(
	_ context.Context, a authorizer.Attributes,
) (authorizer.Decision, string, error) {
	if a.GetVerb()+" "+a.GetResource()+" "+a.GetName() == p.may {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (p policy) RulesOf(context.Context, user.Info, string) ([]rbacv1.PolicyRule, error) {
	return p.rules, nil
}

func (p policy) RoleRules(
	_ context.Context, ref rbacv1.RoleRef, _ string,
) ([]rbacv1.PolicyRule, error) {
	if ref.Name != "reader" {
		return nil, apierrors.NewNotFound(rbacv1.Resource("clusterroles"), ref.Name)
	}
	return podReader("get", "list"), nil
}

func podReader(verbs ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{Verbs: verbs, APIGroups: []string{""}, Resources: []string{"pods"}}}
}

func TestEscalation(t *testing.T) {
	t.Parallel()
	all := []rbacv1.PolicyRule{
		{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
		{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
	}
	role := func(verbs ...string) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{Rules: podReader(verbs...)}
	}
	bound := func(name string) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		}
	}
	aggregating := &rbacv1.ClusterRole{AggregationRule: &rbacv1.AggregationRule{}}
	for name, test := range map[string]struct {
		policy   policy
		group    string
		obj, old runtime.Object
		want     string
	}{
		"holds": {policy: policy{rules: podReader("get", "list")}, obj: role("get")},
		"does not hold": {
			policy: policy{rules: podReader("get")},
			obj:    role("get", "list", "watch"),
			want:   `verbs=["list" "watch"]`,
		},
		"may escalate":  {policy: policy{may: "escalate clusterroles x"}, obj: role("get")},
		"is privileged": {group: user.SystemPrivilegedGroup, obj: aggregating},
		"aggregates": {
			policy: policy{rules: podReader("get")},
			obj:    aggregating,
			want:   "nonResourceURLs",
		},
		"stops aggregating": {
			policy: policy{rules: podReader("get")},
			obj:    role("get"),
			old:    aggregating,
			want:   "nonResourceURLs",
		},
		"aggregates with all":  {policy: policy{rules: all}, obj: aggregating},
		"binds what they hold": {policy: policy{rules: podReader("list", "get")}, obj: bound("reader")},
		"binds more": {
			policy: policy{rules: podReader("list")},
			obj:    bound("reader"),
			want:   `verbs=["get"]`,
		},
		"may bind":      {policy: policy{may: "bind clusterroles reader"}, obj: bound("reader")},
		"binds nothing": {obj: bound("nobody"), want: "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := check(mayWriteClusterRole)
			if _, binding := test.obj.(*rbacv1.ClusterRoleBinding); binding {
				c = func(ctx context.Context, p Policy, obj, _ runtime.Object) error {
					return mayBind(ctx, p, obj.(*rbacv1.ClusterRoleBinding).RoleRef)
				}
			}
			store := &genericregistry.Store{DefaultQualifiedResource: rbacv1.Resource("clusterroles")}
			g := guard(&kind.Storage{Store: store}, test.policy, c).(*guarded)
			ctx := genericapirequest.WithUser(t.Context(),
				&user.DefaultInfo{Name: "bob", Groups: []string{test.group}})
			ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
				IsResourceRequest: true, APIGroup: rbacv1.GroupName, Resource: "clusterroles", Name: "x",
			})
			err := g.refuse(ctx, test.obj, test.old)
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v does not contain %q", err, test.want)
			case err != nil && !slices.Contains([]metav1.StatusReason{
				metav1.StatusReasonForbidden, metav1.StatusReasonNotFound,
			}, apierrors.ReasonForError(err)):
				t.Errorf("error %v is neither a 403 nor a 404", err)
			}
		})
	}
}

func TestGarbageCollectorMayTidyUp(t *testing.T) {
	t.Parallel()
	old := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Finalizers: []string{"f"}},
		Rules:      podReader("get"),
	}
	tidied := old.DeepCopy()
	tidied.Finalizers = nil
	if !collects(tidied, old) {
		t.Error("removing a finalizer does not count as garbage collection")
	}
	tidied.Rules = podReader("*")
	if collects(tidied, old) {
		t.Error("changing a rule counts as garbage collection")
	}
}

func TestNoUserIsRefused(t *testing.T) {
	t.Parallel()
	g := &guarded{Storage: &kind.Storage{
		Store: &genericregistry.Store{DefaultQualifiedResource: schema.GroupResource{Resource: "roles"}},
	}}
	err := g.refuse(t.Context(), &rbacv1.Role{}, nil)
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) || status.Status().Code != 403 {
		t.Errorf("got %v", err)
	}
}
