package rbacauthorizer

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

// TestBootstrapIsKubeAPIServers compares the bootstrap policy with the objects that kube-apiserver
// 1.37.2 created. Its aggregated roles have the rules that kube-controller-manager gave them.
func TestBootstrapIsKubeAPIServers(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/kube-apiserver.json")
	if err != nil {
		t.Fatal(err)
	}
	var want Policy
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	if len(want.ClusterRoles) != 73 || len(want.ClusterRoleBindings) != 54 || len(want.Roles) != 7 ||
		len(want.RoleBindings) != 7 {
		t.Fatal("the test data is incomplete")
	}
	got := map[string]any{}
	for _, o := range Bootstrap().Objects() {
		got[fmt.Sprintf("%T %s", o, keyOf(o.(metav1.Object)))] = o
	}
	for _, o := range want.Objects() {
		name := fmt.Sprintf("%T %s", o, keyOf(o.(metav1.Object)))
		if !equality.Semantic.DeepEqual(o, got[name]) {
			a, _ := json.Marshal(o)
			b, _ := json.Marshal(got[name])
			t.Errorf("%s:\nkube-apiserver %s\nhere           %s", name, a, b)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("kube-apiserver has no %s", name)
	}
}

// memory is a Source that reads from a policy.
type memory struct{ *Policy }

func (m memory) ClusterRoleBindings(context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	return m.Policy.ClusterRoleBindings, nil
}

func (m memory) RoleBindings(_ context.Context, namespace string) ([]*rbacv1.RoleBinding, error) {
	var out []*rbacv1.RoleBinding
	for _, b := range m.Policy.RoleBindings {
		if b.Namespace == namespace {
			out = append(out, b)
		}
	}
	return out, nil
}

func (m memory) ClusterRole(_ context.Context, name string) (*rbacv1.ClusterRole, error) {
	for _, r := range m.ClusterRoles {
		if r.Name == name {
			return r, nil
		}
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource("clusterroles"), name)
}

func (m memory) Role(_ context.Context, namespace, name string) (*rbacv1.Role, error) {
	for _, r := range m.Roles {
		if r.Namespace == namespace && r.Name == name {
			return r, nil
		}
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource("roles"), name)
}

// testPolicy returns the bootstrap policy with additional roles and bindings for test users.
func testPolicy() *Policy {
	p := Bootstrap()
	bind := func(namespace, name, kind, role, subject string) {
		b := binding{namespace: namespace, name: name, role: role, subjects: subject}
		p.RoleBindings = append(p.RoleBindings, &rbacv1.RoleBinding{
			ObjectMeta: metadata(namespace, name),
			Subjects:   b.subjectList(),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		})
	}
	bind("shop", "alice-views", "ClusterRole", "view", "user:alice")
	bind("shop", "devs-edit", "ClusterRole", "edit", "group:devs")
	bind("shop", "bot", "Role", "bot", "account:ci/bot")
	bind("shop", "lost", "Role", "nowhere", "user:carol")
	p.RoleBindings[len(p.RoleBindings)-1].Subjects = append(
		p.RoleBindings[len(p.RoleBindings)-1].Subjects,
		rbacv1.Subject{Kind: "ServiceAccount", Name: "own"})
	p.Roles = append(p.Roles, &rbacv1.Role{
		ObjectMeta: metadata("shop", "bot"),
		Rules: []rbacv1.PolicyRule{
			rule{verbs: "get", groups: "core", resources: "configmaps", names: "cm"}.policyRule(),
			rule{verbs: "update", groups: "*", resources: "*/scale"}.policyRule(),
		},
	})
	return p
}

func TestAuthorize(t *testing.T) {
	t.Parallel()
	a := New(memory{testPolicy()})
	users := map[string]user.Info{
		"alice": &user.DefaultInfo{Name: "alice", Groups: []string{"system:authenticated"}},
		"dev":   &user.DefaultInfo{Name: "dev", Groups: []string{"devs", "system:authenticated"}},
		"bot":   &user.DefaultInfo{Name: "system:serviceaccount:ci:bot"},
		"own":   &user.DefaultInfo{Name: "system:serviceaccount:shop:own"},
		"root":  &user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}},
		"anon":  &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}},
		"sched": &user.DefaultInfo{Name: "system:kube-scheduler"},
	}
	for _, test := range []struct {
		user, verb, namespace, group, resource, name string
		allowed                                      bool
		reason                                       string
	}{
		{
			"alice", "get", "shop", "", "pods", "x", true,
			`RoleBinding "shop/alice-views" grants ClusterRole "view" to User "alice"`,
		},
		{"alice", "get", "shop", "", "secrets", "x", false, ""},
		{"alice", "get", "other", "", "pods", "x", false, ""},
		{"alice", "list", "", "", "pods", "", false, ""},
		{"alice", "create", "", "authorization.k8s.io", "selfsubjectaccessreviews", "", true, ""},
		{"dev", "create", "shop", "apps", "deployments", "", true, `Group "devs"`},
		{"dev", "get", "shop", "", "pods/log", "x", true, ""},
		{"dev", "create", "shop", "rbac.authorization.k8s.io", "roles", "", false, ""},
		{"bot", "get", "shop", "", "configmaps", "cm", true, `ServiceAccount "ci/bot"`},
		{"bot", "get", "shop", "", "configmaps", "other", false, ""},
		{"bot", "list", "shop", "", "configmaps", "", false, ""},
		{"bot", "update", "shop", "apps", "deployments/scale", "x", true, ""},
		{"bot", "update", "shop", "apps", "deployments", "x", false, ""},
		{"own", "get", "shop", "", "pods", "x", false, `"nowhere" not found`},
		{"root", "delete", "", "any.example", "things", "x", true, ""},
		{"anon", "get", "shop", "", "pods", "x", false, ""},
		{"sched", "update", "kube-system", "coordination.k8s.io", "leases", "kube-scheduler", true, ""},
		{"sched", "list", "", "storage.k8s.io", "csinodes", "", true, ""},
	} {
		resource, sub, _ := strings.Cut(test.resource, "/")
		decision, reason, err := a.Authorize(t.Context(), authorizer.AttributesRecord{
			User:            users[test.user],
			Verb:            test.verb,
			Namespace:       test.namespace,
			APIGroup:        test.group,
			Resource:        resource,
			Subresource:     sub,
			Name:            test.name,
			ResourceRequest: true,
		})
		want := authorizer.DecisionNoOpinion
		if test.allowed {
			want = authorizer.DecisionAllow
		}
		if decision != want || err != nil || !strings.Contains(reason, test.reason) ||
			test.allowed && reason == "" {
			t.Errorf("%+v: %v %q %v", test, decision, reason, err)
		}
	}
	for _, test := range []struct {
		user, path string
		allowed    bool
	}{
		{"anon", "/version", true}, {"anon", "/livez", true}, {"anon", "/livez/ping", false},
		{"anon", "/api", false}, {"anon", "/metrics", false}, {"alice", "/api", true},
		{"alice", "/apis/apps/v1", true}, {"alice", "/apis", true}, {"alice", "/metrics", false},
		{"root", "/metrics", true},
	} {
		decision, _, err := a.Authorize(t.Context(),
			authorizer.AttributesRecord{User: users[test.user], Verb: "get", Path: test.path})
		if err != nil || (decision == authorizer.DecisionAllow) != test.allowed {
			t.Errorf("%s gets %s: %v %v", test.user, test.path, decision, err)
		}
	}
}

func TestRulesFor(t *testing.T) {
	t.Parallel()
	a := New(memory{testPolicy()})
	resources, urls, incomplete, err := a.RulesFor(t.Context(),
		&user.DefaultInfo{Name: "alice", Groups: []string{"system:authenticated"}}, "shop")
	if err != nil || incomplete || len(resources) != 2+12 || len(urls) != 2 {
		t.Errorf("%d resource rules, %d URL rules, incomplete %t, %v",
			len(resources), len(urls), incomplete, err)
	}
	_, _, incomplete, err = a.RulesFor(t.Context(), &user.DefaultInfo{Name: "carol"}, "shop")
	if err == nil || !incomplete {
		t.Error("the rules are reported as complete although a role does not exist")
	}
}

func TestEnsure(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	p := Bootstrap()
	if err := Ensure(t.Context(), client, p); err != nil {
		t.Fatal(err)
	}
	api := client.RbacV1()
	view, err := api.ClusterRoles().Get(t.Context(), "view", metav1.GetOptions{})
	if err != nil || len(view.Rules) != 12 {
		t.Errorf("view has %d rules: %v", len(view.Rules), err)
	}

	// Rules that an administrator removed are restored, added rules are kept, and protected objects
	// are not changed.
	basic, err := api.ClusterRoles().Get(t.Context(), "system:basic-user", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	basic.Rules = []rbacv1.PolicyRule{rule{verbs: "get", groups: "x", resources: "y"}.policyRule()}
	discovery, err := api.ClusterRoleBindings().Get(t.Context(), "system:discovery",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	discovery.Subjects, discovery.Annotations[rbacv1.AutoUpdateAnnotationKey] = nil, "false"
	if _, err := api.ClusterRoles().Update(t.Context(), basic, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.ClusterRoleBindings().Update(t.Context(), discovery,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := api.Roles("kube-system").Delete(t.Context(), "system:controller:token-cleaner",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	client.ClearActions()
	if err := Ensure(t.Context(), client, p); err != nil {
		t.Fatal(err)
	}
	writes := 0
	for _, action := range client.Actions() {
		if action.GetVerb() == "create" && action.GetResource().Resource != "namespaces" ||
			action.GetVerb() == "update" {
			writes++
		}
	}
	if writes != 2 {
		t.Errorf("got %d writes, want 2: %v", writes, client.Actions())
	}
	if basic, err = api.ClusterRoles().Get(t.Context(), "system:basic-user",
		metav1.GetOptions{}); err != nil || len(basic.Rules) < 3 {
		t.Errorf("system:basic-user has %d rules, %v", len(basic.Rules), err)
	}
	if discovery, err = api.ClusterRoleBindings().Get(t.Context(), "system:discovery",
		metav1.GetOptions{}); err != nil || discovery.Subjects != nil {
		t.Errorf("a protected binding was changed: %v %v", discovery, err)
	}
}

func TestInformersThatHaveNotSynced(t *testing.T) {
	t.Parallel()
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	a := New(FromInformers(factory.Rbac().V1(), memory{testPolicy()}))
	request := authorizer.AttributesRecord{
		User:            &user.DefaultInfo{Name: "alice"},
		Verb:            "get",
		Namespace:       "shop",
		Resource:        "pods",
		ResourceRequest: true,
	}
	if decision, _, _ := a.Authorize(t.Context(), request); decision != authorizer.DecisionAllow {
		t.Error("the other source was not used before the informers had synced")
	}
	ctx, stop := context.WithCancel(t.Context())
	defer factory.Shutdown()
	defer stop()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if decision, _, _ := a.Authorize(t.Context(), request); decision == authorizer.DecisionAllow {
		t.Error("alice was allowed, although the informers have no binding for her")
	}
}

func TestLazily(t *testing.T) {
	t.Parallel()
	made := 0
	a := New(Lazily(func() Source { made++; return memory{testPolicy()} }))
	if made != 0 {
		t.Error("the source was created before it was read")
	}
	for range 2 {
		decision, _, err := a.Authorize(t.Context(), authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: "x", Groups: []string{"system:authenticated"}},
			Verb: "get",
			Path: "/api",
		})
		if decision != authorizer.DecisionAllow || err != nil || made != 1 {
			t.Errorf("%v, %v, created %d times", decision, err, made)
		}
	}
}

func BenchmarkBootstrap(b *testing.B) {
	for b.Loop() {
		Bootstrap()
	}
}

// BenchmarkAuthorize authorizes requests with informers that hold the bootstrap policy and bindings
// in 200 other namespaces.
func BenchmarkAuthorize(b *testing.B) {
	p := testPolicy()
	for i := range 200 {
		name := fmt.Sprintf("ns-%d", i)
		p.RoleBindings = append(p.RoleBindings, &rbacv1.RoleBinding{
			ObjectMeta: metadata(name, "edit"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"},
			Subjects: []rbacv1.Subject{{Kind: "User", Name: "bob"}},
		})
	}
	factory := informers.NewSharedInformerFactory(fake.NewClientset(p.Objects()...), 0)
	a := New(FromInformers(factory.Rbac().V1(), nil))
	ctx, stop := context.WithCancel(b.Context())
	defer factory.Shutdown()
	defer stop()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for name, u := range map[string]user.Info{
		"alice": &user.DefaultInfo{Name: "alice", Groups: []string{"system:authenticated"}},
		"bot": &user.DefaultInfo{
			Name:   "system:serviceaccount:ci:bot",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated"},
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				a.Authorize(ctx, authorizer.AttributesRecord{
					User:            u,
					Verb:            "get",
					Namespace:       "shop",
					Resource:        "configmaps",
					Name:            "cm",
					ResourceRequest: true,
				})
			}
		})
	}
}
