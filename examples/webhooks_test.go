package examples_test

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/cert"

	"github.com/kinproc/kinproc/examples/kubectl"
	"github.com/kinproc/kinproc/server/servertest"
)

// hooks is a webhook server in the test process.
type hooks struct {
	port     string
	url      string
	caBundle string // base64
}

// startHooks serves webhooks on localhost with a certificate for localhost and for the service
// default/hooks.
func startHooks(t *testing.T) hooks {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/mutate", review(func(object map[string]any, r *admissionv1.AdmissionResponse) {
		if data, _, _ := unstructured.NestedStringMap(object, "data"); data["mutated"] == "" {
			r.Patch = []byte(`[{"op": "add", "path": "/data/mutated", "value": "yes"}]`)
			r.PatchType = new(admissionv1.PatchTypeJSONPatch)
		}
	}))
	mux.HandleFunc("/validate", review(func(object map[string]any, r *admissionv1.AdmissionResponse) {
		if data, _, _ := unstructured.NestedStringMap(object, "data"); data["color"] == "red" {
			r.Allowed, r.Result = false, &metav1.Status{Message: "no red, please"}
		}
		r.Warnings = []string{"seen by the webhook"}
	}))
	mux.HandleFunc("/convert", convert)
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("hooks.default.svc", nil,
		[]string{"localhost"})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(mux)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return hooks{
		port:     port,
		url:      "https://localhost:" + port,
		caBundle: base64.StdEncoding.EncodeToString(certPEM),
	}
}

// review returns a handler for admission reviews. decide modifies the response, which allows the
// request by default.
func review(decide func(object map[string]any, r *admissionv1.AdmissionResponse)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		var object map[string]any
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := json.Unmarshal(review.Request.Object.Raw, &object); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		decide(object, review.Response)
		_ = json.NewEncoder(w).Encode(review) // fails only if the client is gone
	}
}

// convert converts hoses between v1, in which spec.length is a number of meters, and v2, in which
// it is a string such as "3m".
func convert(w http.ResponseWriter, r *http.Request) {
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &apiextensionsv1.ConversionResponse{
		UID:    review.Request.UID,
		Result: metav1.Status{Status: metav1.StatusSuccess},
	}
	for _, raw := range review.Request.Objects {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw.Raw); err != nil {
			review.Response.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
			break
		}
		spec, _ := u.Object["spec"].(map[string]any)
		switch length := spec["length"].(type) {
		case int64:
			spec["length"] = fmt.Sprintf("%dm", length)
		case string:
			var metres int64
			fmt.Sscanf(length, "%dm", &metres)
			spec["length"] = metres
		}
		u.SetAPIVersion(review.Request.DesiredAPIVersion)
		review.Response.ConvertedObjects = append(review.Response.ConvertedObjects,
			runtime.RawExtension{Object: u})
	}
	_ = json.NewEncoder(w).Encode(review)
}

func TestAdmissionWebhooks(t *testing.T) {
	t.Parallel()
	h := startHooks(t)
	for name, reference := range map[string]string{
		"URL":     "url: " + h.url + "/%s",
		"service": "service: {namespace: default, name: hooks, port: " + h.port + ", path: /%s}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := servertest.Run(t, patient)
			k := kubectl.New(t, s)
			k.Apply(hooksService)
			k.Apply(fmt.Sprintf(webhookConfigurations, h.caBundle, fmt.Sprintf(reference, "mutate"),
				h.caBundle, fmt.Sprintf(reference, "validate")))
			k.Apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: hooked, labels: {hooks: please}}")

			// Webhook configurations take effect with a short delay.
			eventually(t, func() error {
				_, err := k.Try("create", "configmap", "red", "-n", "hooked",
					"--from-literal=color=red", "--dry-run=server")
				if err == nil || !strings.Contains(err.Error(), "no red, please") {
					return fmt.Errorf("a red config map: %v", err)
				}
				// The webhook that changes may take effect after the one that refuses.
				got, err := k.Try("create", "configmap", "blue", "-n", "hooked", "--from-literal=color=blue",
					"--dry-run=server", "-o", "jsonpath={.data.mutated}")
				if err == nil && got != "yes" {
					err = fmt.Errorf("mutated: %q", got)
				}
				return err
			})
			k.Run("create", "configmap", "blue", "-n", "hooked", "--from-literal=color=blue")
			if got := k.Run("get", "configmap", "blue", "-n", "hooked", "-o",
				"jsonpath={.data.mutated}"); got != "yes" {
				t.Errorf("mutated: %q", got)
			}
			// in a namespace without webhooks
			k.Run("create", "configmap", "red", "--from-literal=color=red")
		})
	}
}

func TestConversionWebhook(t *testing.T) {
	t.Parallel()
	h := startHooks(t)
	for name, reference := range map[string]string{
		"URL":     "url: " + h.url + "/convert",
		"service": "service: {namespace: default, name: hooks, port: " + h.port + ", path: /convert}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := kubectl.New(t, servertest.Run(t, patient))
			k.Apply(hooksService)
			k.Apply(fmt.Sprintf(hosesDefinition, h.caBundle, reference))
			k.WaitEstablished("hoses.example.com")
			k.Apply("apiVersion: example.com/v1\nkind: Hose\nmetadata: {name: garden}\nspec: {length: 30}")
			for version, want := range map[string]string{"v1": "30", "v2": "30m"} {
				if got := k.Run("get", "hoses."+version+".example.com", "garden", "-o",
					"jsonpath={.spec.length}"); got != want {
					t.Errorf("%s: length %q, want %q", version, got, want)
				}
			}
			k.Apply("apiVersion: example.com/v2\nkind: Hose\nmetadata: {name: garden}\nspec: {length: 31m}")
			if got := k.Run("get", "hoses.v1.example.com", "-o",
				"jsonpath={.items[*].spec.length}"); got != "31" {
				t.Errorf("as v1: %q", got)
			}
		})
	}
}

const hooksService = `
apiVersion: v1
kind: Service
metadata: {name: hooks, namespace: default}
spec: {type: ExternalName, externalName: localhost}
`

const webhookConfigurations = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: mutate}
webhooks:
- name: mutate.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig:
    caBundle: %s
    %s
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {hooks: please}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: validate}
webhooks:
- name: validate.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig:
    caBundle: %s
    %s
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}
  namespaceSelector: {matchLabels: {hooks: please}}
`

const hosesDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: hoses.example.com}
spec:
  group: example.com
  names: {plural: hoses, singular: hose, kind: Hose}
  scope: Namespaced
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig:
        caBundle: %s
        %s
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {length: {type: integer}}}}
  - name: v2
    served: true
    storage: false
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {length: {type: string}}}}
`
