package apitest

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestStartUnderRefusals creates webhooks and policies that reject everything, including the
// server's own writes. The server starts nevertheless, so that they can be removed.
func TestStartUnderRefusals(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	keep := func(o *server.Options) { o.DataDir = dir }
	t.Run("refuse", func(t *testing.T) { refuseAll(t, servertest.Run(t, keep)) })

	// The server now has a different port, which it has to write to the service default/kubernetes.
	client := kubernetes.NewForConfigOrDie(servertest.Run(t, keep).RESTConfig())
	api, ctx := client.AdmissionregistrationV1(), t.Context()
	if err := api.ValidatingAdmissionPolicyBindings().Delete(ctx, "nothing",
		metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	// The deletions take effect with a short delay.
	var deleted, refused error
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			deleted = api.ValidatingWebhookConfigurations().Delete(ctx, "dead", metav1.DeleteOptions{})
			_, refused = client.CoreV1().ConfigMaps("default").Create(ctx,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"}}, metav1.CreateOptions{})
			return refused == nil, nil
		})
	if err != nil {
		t.Fatal(deleted, refused)
	}
}

// refuseAll creates a webhook and a policy that reject every request.
func refuseAll(t *testing.T, s *server.Server) {
	t.Helper()
	api := kubernetes.NewForConfigOrDie(s.RESTConfig()).AdmissionregistrationV1()
	ctx := t.Context()
	everything := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule: admissionregistrationv1.Rule{
			APIGroups:   []string{"*"},
			APIVersions: []string{"*"},
			Resources:   []string{"*/*"},
		},
	}
	_, err := api.ValidatingWebhookConfigurations().Create(ctx,
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "dead"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "dead.example.com",
				ClientConfig: admissionregistrationv1.WebhookClientConfig{
					URL: new("https://127.0.0.1:1/"),
				},
				Rules:                   []admissionregistrationv1.RuleWithOperations{everything},
				AdmissionReviewVersions: []string{"v1"},
				SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			}},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = api.ValidatingAdmissionPolicies().Create(ctx,
		&admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "nothing"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
						RuleWithOperations: everything,
					}},
				},
				Validations: []admissionregistrationv1.Validation{{Expression: "false"}},
			},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = api.ValidatingAdmissionPolicyBindings().Create(ctx,
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "nothing"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        "nothing",
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
