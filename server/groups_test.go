package server_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestGroupOffByDefault checks a group whose versions are all disabled by default, with and without
// enabling it.
func TestGroupOffByDefault(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{false, true} {
		s := servertest.Run(t, servertest.WithoutControllers, func(o *server.Options) {
			if on {
				o.RuntimeConfig = map[string]string{"lifecycle.k8s.io/v1alpha1": "true"}
			}
		})
		client, err := kubernetes.NewForConfig(s.RESTConfig())
		if err != nil {
			t.Fatal(err)
		}
		groups, err := client.Discovery().ServerGroups()
		if err != nil {
			t.Fatal(err)
		}
		listed := false
		for _, g := range groups.Groups {
			listed = listed || g.Name == lifecyclev1alpha1.GroupName
		}
		_, err = client.LifecycleV1alpha1().EvictionRequests("default").Create(t.Context(),
			&lifecyclev1alpha1.EvictionRequest{
				ObjectMeta: metav1.ObjectMeta{Name: "r"},
				Spec: lifecyclev1alpha1.EvictionRequestSpec{
					Target: lifecyclev1alpha1.EvictionRequestTarget{
						Pod: &lifecyclev1alpha1.EvictionRequestPodReference{Name: "p", UID: uuid.NewUUID()},
					},
					Requester: "example.com/test",
					Intent:    lifecyclev1alpha1.EvictionRequestIntentEviction,
				},
			}, metav1.CreateOptions{})
		if on && err != nil || !on && !apierrors.IsNotFound(err) || listed != on {
			t.Errorf("enabled: %t, listed: %t, create: %v", on, listed, err)
		}
	}
}

// TestSystemObjects checks the special behavior of the system's objects.
func TestSystemObjects(t *testing.T) {
	t.Parallel()
	s, ctx := servertest.Run(t, servertest.WithoutControllers), t.Context()
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := client.SchedulingV1().PriorityClasses().Delete(ctx, "system-node-critical",
		metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("delete a system priority class: got %v, want Forbidden", err)
	}
	schemas := client.FlowcontrolV1().RESTClient().Get().Resource("flowschemas")
	data, err := schemas.SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").
		Do(ctx).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	first, last := table.Rows[0].Cells[0], table.Rows[len(table.Rows)-1].Cells[0]
	if first != "exempt" || last != "catch-all" {
		t.Errorf("flow schemas are listed from %v to %v, want them sorted by matching precedence",
			first, last)
	}
}

// TestParamAccess checks that a user can only write policies and bindings whose parameters the user
// can read.
func TestParamAccess(t *testing.T) {
	t.Parallel()
	s, ctx := servertest.Run(t), t.Context()
	admin, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	config, err := s.User("writer")
	if err != nil {
		t.Fatal(err)
	}
	writer, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.RbacV1().ClusterRoles().Create(ctx,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "writer"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{admissionv1.GroupName}, Resources: []string{"*"}, Verbs: []string{"*"}},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}},
			{
				APIGroups:     []string{""},
				Resources:     []string{"secrets"},
				ResourceNames: []string{"known"},
				Verbs:         []string{"get"},
			},
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "writer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "writer"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "writer"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	policy := func(client kubernetes.Interface, name, kind string) error {
		_, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx,
			&admissionv1.ValidatingAdmissionPolicy{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: admissionv1.ValidatingAdmissionPolicySpec{
					ParamKind: &admissionv1.ParamKind{APIVersion: "v1", Kind: kind},
					MatchConstraints: &admissionv1.MatchResources{
						ResourceRules: []admissionv1.NamedRuleWithOperations{{
							RuleWithOperations: admissionv1.RuleWithOperations{
								Operations: []admissionv1.OperationType{admissionv1.Create},
								Rule: admissionv1.Rule{
									APIGroups:   []string{"example.com"},
									APIVersions: []string{"v1"},
									Resources:   []string{"widgets"},
								},
							},
						}},
					},
					Validations: []admissionv1.Validation{{Expression: "true"}},
				},
			}, metav1.CreateOptions{})
		return err
	}
	binding := func(name, policy, param string) error {
		_, err := writer.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx,
			&admissionv1.ValidatingAdmissionPolicyBinding{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
					PolicyName: policy, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
					ParamRef: &admissionv1.ParamRef{
						Name:                    param,
						Namespace:               "default",
						ParameterNotFoundAction: new(admissionv1.DenyAction),
					},
				},
			}, metav1.CreateOptions{})
		return err
	}
	// The authorizer learns about the role through a watch.
	var last error
	err = wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, 30*time.Second, true,
		func(context.Context) (bool, error) {
			last = policy(writer, "configmaps", "ConfigMap")
			return last == nil, nil
		})
	if err != nil {
		t.Fatalf("create a policy with readable parameters: %v", last)
	}
	if err := policy(admin, "secrets", "Secret"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		err     error
		refused string
	}{
		"kind that may not be read":    {policy(writer, "forbidden", "Secret"), "spec.paramKind"},
		"kind that does not exist":     {policy(writer, "unknown", "Nothing"), "spec.paramKind"},
		"binding to readable kind":     {binding("a", "configmaps", "any"), ""},
		"binding to readable object":   {binding("b", "secrets", "known"), ""},
		"binding to unreadable object": {binding("c", "secrets", "other"), "spec.paramRef"},
		"binding without policy":       {binding("d", "nothing", "any"), "spec.paramRef"},
	} {
		if c.refused == "" && c.err != nil ||
			c.refused != "" && (c.err == nil || !strings.Contains(c.err.Error(), c.refused)) {
			t.Errorf("%s: got error %v, want one that contains %q", name, c.err, c.refused)
		}
	}
}
