package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// allowing answers that jane may read config maps, and counts how often it is asked.
func allowing(asked *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		resource := review.Spec.ResourceAttributes
		review.Status.Allowed = review.Spec.User == "jane" && resource != nil &&
			resource.Verb == "list" && resource.Resource == "configmaps"
		reply(w, review)
	}
}

// acting returns a client that acts as a user.
func acting(s *server.Server, name string) kubernetes.Interface {
	config := s.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: name}
	return kubernetes.NewForConfigOrDie(config)
}

func listConfigMaps(t *testing.T, s *server.Server, name string) error {
	_, err := acting(s, name).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	return err
}

func TestAuthorizationWebhook(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	s := servertest.Run(t, func(o *server.Options) {
		o.AuthorizationModes = []string{"Webhook", "RBAC"}
		o.AuthorizationWebhook = server.AuthorizationWebhookOptions{
			ConfigFile: webhookFile(t, allowing(&asked)), Version: "v1",
		}
	})
	for range 2 {
		if err := listConfigMaps(t, s, "jane"); err != nil {
			t.Error(err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the webhook was asked %d times about one request", n)
	}
	if err := listConfigMaps(t, s, "joe"); !apierrors.IsForbidden(err) {
		t.Errorf("somebody else: %v", err)
	}
}

// The configuration file has the authorizers. A change of the file takes effect while the server
// runs.
func TestAuthorizationConfig(t *testing.T) {
	t.Parallel()
	const head = `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
`
	const rbac = "- {type: RBAC, name: rbac}\n"
	var asked atomic.Int64
	hook := fmt.Sprintf(`
- type: Webhook
  name: zoo
  webhook:
    timeout: 3s
    authorizedTTL: 1m
    unauthorizedTTL: 1m
    failurePolicy: Deny
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: %q}
    matchConditions: [{expression: "request.user == 'jane'"}]
`, webhookFile(t, allowing(&asked)))
	file := writeFile(t, "authorization.yaml", []byte(head+rbac))
	s := servertest.Run(t, func(o *server.Options) { o.AuthorizationConfigFile = file })
	if err := listConfigMaps(t, s, "jane"); !apierrors.IsForbidden(err) {
		t.Errorf("without the webhook: %v", err)
	}
	if err := os.WriteFile(file, []byte(head+hook+rbac), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "with the webhook", func() error { return listConfigMaps(t, s, "jane") })
	before := asked.Load()
	if err := listConfigMaps(t, s, "joe"); !apierrors.IsForbidden(err) ||
		asked.Load() != before {
		t.Errorf("somebody whom the condition does not match: %v, asked %d times", err,
			asked.Load()-before)
	}
}

func TestAuthorizationOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []server.Options{
		{AuthorizationModes: []string{"Webhook"}},
		{AuthorizationWebhook: server.AuthorizationWebhookOptions{ConfigFile: "f"}},
		{AuthorizationModes: []string{"RBAC"}, AuthorizationConfigFile: "f"},
		{AuthorizationWebhook: server.AuthorizationWebhookOptions{Version: "v2"}},
		{OIDC: server.OIDCOptions{IssuerURL: "https://h"}},
		{OIDC: server.OIDCOptions{GroupsClaim: "g"}},
		{OIDC: server.OIDCOptions{IssuerURL: "https://h", ClientID: "c"}, AuthenticationConfigFile: "f"},
		{EncryptionProviderConfigAutomaticReload: true},
	} {
		if errs := o.Validate(); len(errs) != 1 {
			t.Errorf("%+v: %v", o, errs)
		}
	}
}
