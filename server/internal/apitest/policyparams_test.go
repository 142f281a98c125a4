package apitest

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/servertest"
)

// TestPolicyParamAccess checks that a user can only write policies and bindings whose parameters
// the user can read.
func TestPolicyParamAccess(t *testing.T) {
	t.Parallel()
	s, ctx := servertest.Run(t), t.Context()
	admin, writer := kubernetes.NewForConfigOrDie(s.RESTConfig()), as(t, s, "writer")
	_, err := admin.RbacV1().ClusterRoles().Create(ctx,
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
	eventually(t, "create a policy with readable parameters", func() error {
		return policy(writer, "configmaps", "ConfigMap")
	})
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
