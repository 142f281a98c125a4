package apitest

import (
	"net/http"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestPatchIsNoJSON checks that a patch that is not JSON is refused before its object is looked up,
// as by kube-apiserver since v1.37.
func TestPatchIsNoJSON(t *testing.T) {
	t.Parallel()
	s, _ := shared(t)
	client, err := rest.HTTPClientFor(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	for path, contentType := range map[string]string{
		"/api/v1/namespaces/missing":        "application/merge-patch+json",
		"/api/v1/namespaces/missing/status": "application/json-patch+json",
		"/api/v1/namespaces/absent":         "application/strategic-merge-patch+json",
		"/api/v1/namespaces/default":        "application/merge-patch+json",
	} {
		status, _ := sendBody(t, client, http.MethodPatch, s.URL()+path, contentType, "{x")
		if status.Reason != metav1.StatusReasonBadRequest {
			t.Errorf("%s: %q (%s), want BadRequest", path, status.Reason, status.Message)
		}
	}
}

// TestMissingRoleOfBinding checks the error for a user who may bind no roles.
func TestMissingRoleOfBinding(t *testing.T) {
	t.Parallel()
	s, client := quiet(t)
	ctx, admin := t.Context(), client.RbacV1()
	name := metav1.ObjectMeta{Name: "binder"}
	_, err := admin.ClusterRoles().Create(ctx,
		&rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"*"}, Verbs: []string{"create"}},
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: name,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "binder"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "jane"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	jane := as(t, s, "jane").RbacV1()
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "missing"}
	for kind, create := range map[string]func() error{
		"rolebindings": func() error {
			_, err := jane.RoleBindings("default").Create(ctx,
				&rbacv1.RoleBinding{ObjectMeta: name, RoleRef: ref}, metav1.CreateOptions{})
			return err
		},
		"clusterrolebindings": func() error {
			_, err := jane.ClusterRoleBindings().Create(ctx,
				&rbacv1.ClusterRoleBinding{ObjectMeta: name, RoleRef: ref}, metav1.CreateOptions{})
			return err
		},
	} {
		var err error
		eventually(t, kind, func() error {
			if err = create(); apierrors.IsForbidden(err) {
				return err // the authorizer has not seen the binding
			}
			return nil
		})
		status, ok := err.(apierrors.APIStatus)
		if !ok || status.Status().Reason != metav1.StatusReasonNotFound ||
			status.Status().Details.Kind != kind || status.Status().Details.Name != "missing" {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
