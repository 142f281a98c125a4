package extension_test

import (
	"context"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/kinproc/kinproc/server/extension"
	"github.com/kinproc/kinproc/server/servertest"
)

const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-politics}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [chat.example.com], apiVersions: ["*"], operations: [CREATE], resources: [rooms]}
  validations:
  - {expression: "object.spec.topic != 'politics'", message: "talk about the weather"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-politics}
spec: {policyName: no-politics, validationActions: [Deny]}
`

// With ClusterAdmission, the namespaces and policies of the control plane apply. The server has
// only the permissions that the package documentation names.
func TestClusterAdmission(t *testing.T) {
	t.Parallel()
	plane := servertest.Run(t)
	config := servertest.User(t, plane, servertest.Account{
		Name: "chat-server", ClusterRole: "system:auth-delegator",
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"namespaces"},
				Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"*"},
				Verbs: []string{"list", "watch"}},
		},
	})
	servertest.User(t, plane, servertest.Account{
		Name: "chat-server", Namespace: metav1.NamespaceSystem,
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"configmaps"},
			ResourceNames: []string{"extension-apiserver-authentication"},
			Verbs:         []string{"get", "list", "watch"},
		}},
	})
	s, _ := start(t, extension.Options{RESTConfig: config, ClusterAdmission: true})
	register(t, plane.RESTConfig(), s)
	newKubectl(t, plane).must("created", policy, "apply", "-f", "FILE")

	admin, err := dynamic.NewForConfig(plane.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	all := admin.Resource(chatV2.WithResource("rooms"))
	if _, err := all.Namespace("default").Create(t.Context(), room("lobby", "the weather"),
		metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	_, err = all.Namespace("nowhere").Create(t.Context(), room("lobby", "the weather"),
		metav1.CreateOptions{})
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `namespaces "nowhere"`) {
		t.Errorf("a room in a namespace that does not exist: %v", err)
	}
	// The server watches the policies.
	_ = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			_, err = all.Namespace("default").Create(ctx, room("parliament", "politics"),
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err != nil, nil
		})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "talk about the weather") {
		t.Errorf("the policy does not apply: %v", err)
	}
}
