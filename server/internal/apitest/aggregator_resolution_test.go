package apitest

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestAggregatorResolution reaches a server on this machine through each type of service.
func TestAggregatorResolution(t *testing.T) {
	t.Parallel()
	for name, routing := range map[string]bool{"by default": false, "to endpoints only": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := servertest.Run(t, func(o *server.Options) { o.EnableAggregatorRouting = routing })
			here := endpoint(true, "127.0.0.1")
			external := corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}
			for service, test := range map[string]struct {
				spec      corev1.ServiceSpec
				endpoints []discoveryv1.Endpoint
			}{
				"external":   {external, nil},
				"cluster-ip": {corev1.ServiceSpec{}, []discoveryv1.Endpoint{here}},
				"node-port": {
					corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort},
					[]discoveryv1.Endpoint{here},
				},
				"headless": {
					corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone},
					[]discoveryv1.Endpoint{here},
				},
				"one-ready": {corev1.ServiceSpec{}, []discoveryv1.Endpoint{endpoint(false, "192.0.2.1"), here}},
			} {
				t.Run(service, func(t *testing.T) {
					t.Parallel()
					c, e := extend(t, s), startExtension(t, "127.0.0.1", service)
					port := e.port
					if test.endpoints != nil {
						port = 443
						test.spec = behind(test.spec, port)
						c.slice(service, e.port, test.endpoints...)
					}
					c.service(service, test.spec)
					c.await(c.register(service, port, trusting(e)), "Passed")
					c.awaitStatus("/apis/"+service+".example.com/v1/echoes/one", http.StatusOK)
					if _, body := c.get("/apis/" + service + ".example.com/v1/echoes/one"); !strings.Contains(body,
						"kubernetes-super-admin") {
						t.Errorf("the response does not name the user: %s", body)
					}
				})
			}
		})
	}
}

// TestAggregatorBeforeWebhook uses an extension API server as a webhook, through the aggregator.
// The webhook's service is default/kubernetes, which is this server.
func TestAggregatorBeforeWebhook(t *testing.T) {
	t.Parallel()
	e := startExtension(t, "127.0.0.1", "reviewer")
	c := extend(t, servertest.Run(t))
	c.service("reviewer",
		corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"})
	c.await(c.register("reviewer", e.port, trusting(e)), "Passed")
	for name, bundle := range map[string][]byte{
		"without-bundle": nil,
		"with-bundle":    c.server.RESTConfig().CAData,
	} {
		t.Run(name, func(t *testing.T) {
			c := extend(t, c.server)
			config := &admissionregistrationv1.ValidatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Webhooks: []admissionregistrationv1.ValidatingWebhook{{
					Name: "reviews.example.com",
					ClientConfig: admissionregistrationv1.WebhookClientConfig{
						CABundle: bundle,
						Service: &admissionregistrationv1.ServiceReference{
							Namespace: metav1.NamespaceDefault,
							Name:      "kubernetes",
							Path:      new("/apis/reviewer.example.com/v1/reviews"),
						},
					},
					Rules: []admissionregistrationv1.RuleWithOperations{{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
						Rule: admissionregistrationv1.Rule{
							APIGroups:   []string{""},
							APIVersions: []string{"v1"},
							Resources:   []string{"configmaps"},
						},
					}},
					ObjectSelector: &metav1.LabelSelector{
						MatchLabels: map[string]string{"reviewed": name},
					},
					SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
					AdmissionReviewVersions: []string{"v1"},
				}},
			}
			if _, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(),
				config, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			object := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"reviewed": name}},
			}
			eventually(t, name, func() error { // the configuration takes effect with a delay
				_, err := c.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), object,
					metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if err == nil {
					return errors.New("the webhook was not called")
				}
				if !strings.Contains(err.Error(), "denied at the request of system:apiserver") {
					return err
				}
				return nil
			})
		})
	}
}
